package handover

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/allocationtest"
	"github.com/numalet/numalet/cri"
)

// running is how the runtime reports a pod that holds p.
func running(t *testing.T, p allocation.Pod) cri.Pod {
	t.Helper()
	out := cri.Pod{
		UID: p.UID, Namespace: p.Namespace, Name: p.Name, Sandboxes: []cri.Sandbox{{Ready: true}},
	}
	for name, c := range p.Containers {
		text, err := Describe(name, c)
		if err != nil {
			t.Fatal(err)
		}
		out.Containers = append(out.Containers, cri.Container{
			Name: name, State: cri.ContainerRunning,
			Annotations: map[string]string{Annotation: text},
		})
	}
	return out
}

// of is a copy of p under another boot.
func of(bootID string, p allocation.Pod) allocation.Pod {
	p.BootID, p.Containers = bootID, maps.Clone(p.Containers)
	return p
}

// only is p with nothing but one container.
func only(p allocation.Pod, container string) allocation.Pod {
	p.Containers = map[string]allocation.Container{container: p.Containers[container]}
	return p
}

func TestRebuild(t *testing.T) {
	a := allocationtest.Pod("a")
	older := running(t, a)
	older.Containers = append(older.Containers,
		cri.Container{Name: "main", State: cri.ContainerExited,
			Annotations: map[string]string{Annotation: `{"name":"main","cpus":"9"}`}})
	broken := running(t, a)
	broken.UID, broken.Name = "broken", "broken"
	broken.Containers[0].Annotations = map[string]string{Annotation: "{"}
	rival := running(t, a)
	rival.UID, rival.Name = "rival", "rival"
	ended := running(t, a)
	ended.Sandboxes = nil
	ended.Containers[0].State, ended.Containers[1].State = cri.ContainerExited, cri.ContainerExited
	plain := cri.Pod{
		UID: "plain", Sandboxes: []cri.Sandbox{{Ready: true}},
		Containers: []cri.Container{{Name: "main"}},
	}

	unannotated := cri.Pod{UID: "b", Sandboxes: []cri.Sandbox{{Ready: true}}}
	other := allocationtest.Pod("a")
	other.Containers["main"] = allocation.Container{allocation.CPUs(cpuset.New(40))}
	other.Containers["init"] = allocation.Container{allocation.CPUs(cpuset.New(41))}
	mixed := of("boot-1", other)
	mixed.Containers["main"] = a.Containers["main"]
	brokenRecord := other
	brokenRecord.UID = broken.UID
	// inSandboxes has the pod's containers exited, in a sandbox that is ready or not.
	inSandboxes := func(readiness map[string]bool) cri.Pod {
		p := running(t, a)
		p.Sandboxes = []cri.Sandbox{{ID: "new", Ready: true}, {ID: "old"}}
		for i := range p.Containers {
			p.Containers[i].State, p.Containers[i].SandboxID = cri.ContainerExited, "old"
			if readiness[p.Containers[i].Name] {
				p.Containers[i].SandboxID = "new"
			}
		}
		return p
	}
	starting, started := inSandboxes(nil), inSandboxes(map[string]bool{"init": true})
	ready := running(t, a)
	for i := range ready.Containers {
		if ready.Containers[i].Name == "init" {
			ready.Containers[i].State = cri.ContainerExited
		}
	}

	for name, test := range map[string]struct {
		state allocation.State
		pods  []cri.Pod
		want  []allocation.Change
		err   string
	}{
		"nothing runs":                   {},
		"the newest container of a name": {pods: []cri.Pod{older, plain}, want: []allocation.Change{{Put: a}}},
		"a pod that has ended":           {pods: []cri.Pod{ended}},
		"an annotation that cannot be read": {
			pods: []cri.Pod{broken, older}, want: []allocation.Change{{Put: a}},
			err: "pod default/broken: container",
		},
		"two that claim the same": {
			pods: []cri.Pod{older, rival}, want: []allocation.Change{{Put: a}},
			err: "pod default/rival: CPUs 2-3,18-19 belong to another pod",
		},

		"what runs comes before a record of what does not": {
			state: allocationtest.State(allocationtest.Pod("b")), pods: []cri.Pod{older},
			want: []allocation.Change{{Put: a}, {Drop: "b"}},
			err:  "pod default/train-b: CPUs 2-3,18-19 belong to",
		},
		"what runs unannotated comes before what says it is its own": {
			state: allocationtest.State(allocationtest.Pod("b")), pods: []cri.Pod{older, unannotated},
			err: "pod default/train-a: CPUs 2-3,18-19 belong to another pod",
		},
		"the state agrees": {state: allocationtest.State(a), pods: []cri.Pod{older}},
		"the state is of another boot": {
			state: allocationtest.State(of("boot-0", other)), pods: []cri.Pod{older}, want: []allocation.Change{{Put: a}},
		},
		"of another boot, and of the containers too": {
			state: allocationtest.State(of("boot-0", other)), pods: []cri.Pod{starting},
		},
		"of another boot, and some containers are": {
			state: allocationtest.State(of("boot-0", other)), pods: []cri.Pod{started},
			want: []allocation.Change{{Put: only(a, "init")}},
		},
		"the state was restored": {
			state: allocationtest.State(other), pods: []cri.Pod{older}, want: []allocation.Change{{Put: a}},
		},
		"restored, and one container is not running": {
			state: allocationtest.State(other), pods: []cri.Pod{ready}, want: []allocation.Change{{Put: mixed}},
		},
		"restored, and another pod runs with that": {
			state: allocationtest.State(other, allocationtest.Pod("b")), pods: []cri.Pod{older, unannotated},
			err: "pod default/train-a: CPUs 2-3,18-19 belong to another pod",
		},
		"restored, and the annotation cannot be read": {
			state: allocationtest.State(of("boot-0", brokenRecord)), pods: []cri.Pod{broken},
			err: "pod default/train-a: container",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Rebuild(test.state, test.pods, "boot-1", nil)
			if diff := cmp.Diff(test.want, got, allocationtest.Same); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
			if (err == nil) != (test.err == "") ||
				err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want %q", err, test.err)
			}
		})
	}
}
