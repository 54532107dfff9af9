package server

import (
	"testing"

	"github.com/numalet/numalet/cri"
)

// Only pods with a ready sandbox run, and of these the containers that have not exited are listed.
func TestRunning(t *testing.T) {
	got := running([]cri.Pod{
		{UID: "ended", Sandboxes: []cri.Sandbox{{ID: "1"}}, Containers: []cri.Container{
			{Name: "main", State: cri.ContainerExited}}},
		{UID: "runs", Namespace: "n", Name: "p", Sandboxes: []cri.Sandbox{{ID: "2", Ready: true}},
			Containers: []cri.Container{
				{Name: "main", State: cri.ContainerRunning, From: cri.Origin{Image: "app"}},
				{Name: "init", State: cri.ContainerExited},
			}},
	})
	if len(got.Items) != 1 || got.Kind != "PodList" {
		t.Fatalf("list %+v", got)
	}
	p := got.Items[0]
	if c := p.Spec.Containers; p.UID != "runs" || p.Namespace != "n" || p.Name != "p" ||
		len(c) != 1 || c[0].Name != "main" || c[0].Image != "app" {
		t.Errorf("pod %+v", p)
	}
	if none := running(nil); none.Items == nil {
		t.Error("an empty list is null")
	}
}
