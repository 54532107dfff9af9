package runtimeup

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cri"
)

func TestPlainVersion(t *testing.T) {
	for text, want := range map[string]string{
		"v2.4.2": "2.4.2", "1.33.0-rc.1": "1.33.0-rc.1", "v1.36.0-dev": "1.36.0-dev",
		"very new": "very new", "": "",
	} {
		if got := plainVersion(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

// The node's status has the runtime's handlers by name, each with its own features.
func TestFacts(t *testing.T) {
	s := State{
		RuntimeStatus: cri.RuntimeStatus{
			Name: "containerd", Version: "v2.1.0", SupplementalGroupsPolicy: true,
			Handlers: []cri.RuntimeHandler{
				{Name: "runc", RecursiveReadOnlyMounts: true}, {Name: "gvisor", UserNamespaces: true},
			},
		},
		Images: []v1.ContainerImage{{Names: []string{"app"}}},
	}
	got := s.Facts()
	if len(got.Handlers) != 2 || got.Handlers[0].Name != "gvisor" || got.Handlers[1].Name != "runc" {
		t.Fatalf("handlers %+v", got.Handlers)
	}
	gvisor, runc := got.Handlers[0].Features, got.Handlers[1].Features
	if !*gvisor.UserNamespaces || *gvisor.RecursiveReadOnlyMounts ||
		*runc.UserNamespaces || !*runc.RecursiveReadOnlyMounts {
		t.Errorf("features %+v, %+v", gvisor, runc)
	}
	if !got.SupplementalGroupsPolicy || len(got.Images) != 1 {
		t.Errorf("facts %+v", got)
	}
	if v := s.NodeVersion(); v != "containerd://2.1.0" {
		t.Errorf("version %q", v)
	}
}
