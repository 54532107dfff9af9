package allocation

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/cri"
)

// running is how the runtime reports a pod that holds p.
func running(t *testing.T, p Pod) cri.Pod {
	t.Helper()
	out := cri.Pod{UID: p.UID, Namespace: p.Namespace, Name: p.Name, Sandboxes: []cri.Sandbox{{Ready: true}}}
	for name, c := range p.Containers {
		text, err := Describe(name, c)
		if err != nil {
			t.Fatal(err)
		}
		out.Containers = append(out.Containers, cri.Container{
			Name: name, State: cri.ContainerRunning, Annotations: map[string]string{Annotation: text},
		})
	}
	return out
}

func TestRebuild(t *testing.T) {
	a := examplePod("a")
	older := running(t, a)
	older.Containers = append(older.Containers, cri.Container{Name: "main", State: cri.ContainerExited,
		Annotations: map[string]string{Annotation: `{"name":"main","cpus":"9"}`}})
	broken := running(t, a)
	broken.UID, broken.Name = "broken", "broken"
	broken.Containers[0].Annotations = map[string]string{Annotation: "{"}
	rival := running(t, a)
	rival.UID, rival.Name = "rival", "rival"
	ended := running(t, a)
	ended.Sandboxes, ended.Containers[0].State, ended.Containers[1].State = nil, cri.ContainerExited, cri.ContainerExited
	plain := cri.Pod{UID: "plain", Sandboxes: []cri.Sandbox{{Ready: true}}, Containers: []cri.Container{{Name: "main"}}}

	for name, test := range map[string]struct {
		state State
		pods  []cri.Pod
		want  []Change
		err   string
	}{
		"nothing runs":                         {},
		"the newest container of a name":       {pods: []cri.Pod{older, plain}, want: []Change{{Put: a}}},
		"the state knows better":               {state: State{Pods: map[types.UID]Pod{"a": {UID: "a"}}}, pods: []cri.Pod{older}},
		"a pod that has ended":                 {pods: []cri.Pod{ended}},
		"an annotation that cannot be read":    {pods: []cri.Pod{broken, older}, want: []Change{{Put: a}}, err: "pod default/broken: container"},
		"two that claim the same":              {pods: []cri.Pod{older, rival}, want: []Change{{Put: a}}, err: "pod default/rival: CPUs 2-3,18-19 belong to another pod"},
		"one that claims what is in the state": {state: State{Pods: map[types.UID]Pod{"b": examplePod("b")}}, pods: []cri.Pod{older}, err: "belong to another pod"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Rebuild(test.state, test.pods, "boot-1", Annotated)
			if diff := cmp.Diff(test.want, got, sameCPUs); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want %q", err, test.err)
			}
		})
	}
}
