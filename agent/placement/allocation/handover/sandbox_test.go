package handover

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/allocationtest"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
)

// twoStages has the containers of allocationtest.Pod.
var twoStages = podtest.New("pod", podtest.UID("uid"),
	podtest.Guaranteed("init! cpu=2 memory=5Gi", "main cpu=4 gpu=2 nic=1"))

// annotatedSandbox is how the runtime reports a pod whose sandbox was created with p, and where
// these of its containers are.
func annotatedSandbox(t *testing.T, p allocation.Pod, created ...string) cri.Pod {
	t.Helper()
	text, err := DescribePod(twoStages, p)
	if err != nil {
		t.Fatal(err)
	}
	some := allocation.Pod{
		UID: p.UID, Namespace: p.Namespace, Name: p.Name, Containers: map[string]allocation.Container{},
	}
	for _, name := range created {
		some.Containers[name] = p.Containers[name]
	}
	out := running(t, some)
	out.Sandboxes[0].ID, out.Sandboxes[0].Annotations = "box", map[string]string{Annotation: text}
	for i := range out.Containers {
		out.Containers[i].SandboxID = "box"
	}
	return out
}

// TestSandboxAnnotation: containers that were not created when the state was lost get what it
// says, unless something newer says otherwise.
func TestSandboxAnnotation(t *testing.T) {
	a := allocationtest.Pod("a")
	moved := of("boot-1", a) // as it was placed since the sandbox was created
	moved.Containers["main"] = allocation.Container{allocation.CPUs(cpuset.New(30, 31))}
	moved.Containers["init"] = allocation.Container{allocation.CPUs(cpuset.New(30))}
	other := allocation.Pod{UID: "z", Namespace: "default", Name: "z", BootID: "boot-1",
		Containers: map[string]allocation.Container{"main": a.Containers["main"]}}
	runs := func(p allocation.Pod) cri.Pod { return running(t, p) }
	movedRuns := annotatedSandbox(t, a, "init", "main")
	movedRuns.Containers = annotatedSandbox(t, moved, "init", "main").Containers
	movedInitRuns := annotatedSandbox(t, a)
	movedInitRuns.Containers = annotatedSandbox(t, moved, "init").Containers
	unannotated := annotatedSandbox(t, a, "init")
	unannotated.Containers = append(unannotated.Containers,
		cri.Container{Name: "main", SandboxID: "box", State: cri.ContainerCreated})
	again := annotatedSandbox(t, a, "init") // main's container is of a sandbox before, with other CPUs
	again.Containers = append(again.Containers, cri.Container{
		Name: "main", SandboxID: "before", State: cri.ContainerExited,
		Annotations: map[string]string{Annotation: `{"name":"main","cpus":"9"}`},
	})
	dead := annotatedSandbox(t, a)
	dead.Sandboxes[0].Ready = false
	foreign := annotatedSandbox(t, allocationtest.Pod("b"), "init")
	foreign.UID, foreign.Name = "a", "train-a"
	restored := of("boot-1", a) // what an old copy of the state has
	restored.Containers["init"] = allocation.Container{allocation.CPUs(cpuset.New(5))}
	restored.Containers["main"] = allocation.Container{allocation.CPUs(cpuset.New(6))}
	void := of("boot-1", a)
	void.Containers = allocation.WithoutAnswers(a.Containers)
	void.Containers["init"] = a.Containers["init"]

	for name, test := range map[string]struct {
		state allocation.State
		pods  []cri.Pod
		boot  string
		want  []allocation.Change
		err   string
	}{
		"nothing is created yet": {pods: []cri.Pod{annotatedSandbox(t, a)}, want: []allocation.Change{{Put: a}}},
		"the init container is": {
			pods: []cri.Pod{annotatedSandbox(t, a, "init")}, want: []allocation.Change{{Put: a}},
		},
		"all are": {
			pods: []cri.Pod{annotatedSandbox(t, a, "init", "main")}, want: []allocation.Change{{Put: a}},
		},
		"a dead sandbox promises nobody": {pods: []cri.Pod{dead}},
		"what a container carries is newer": {
			pods: []cri.Pod{movedRuns}, want: []allocation.Change{{Put: moved}},
		},
		"what it was promised before another has now": {
			pods: []cri.Pod{movedRuns, runs(other)}, want: []allocation.Change{{Put: moved}, {Put: other}},
		},
		"what a container of another pod carries is newer": {
			pods: []cri.Pod{annotatedSandbox(t, a), runs(other)}, want: []allocation.Change{{Put: other}},
			err: "pod default/train-a: container main, not created yet: CPUs 2-3,18-19 belong to " +
				"another pod",
		},
		"a container that carries nothing had nothing": {
			pods: []cri.Pod{unannotated}, want: []allocation.Change{{Put: only(a, "init")}},
		},
		"a container of an earlier sandbox is older": {
			pods: []cri.Pod{again}, want: []allocation.Change{{Put: a}},
		},
		"the state is newer": {state: allocationtest.State(moved), pods: []cri.Pod{movedInitRuns}},
		"a state that was restored is older": {
			state: allocationtest.State(restored), pods: []cri.Pod{annotatedSandbox(t, a, "init")},
			want: []allocation.Change{{Put: a}},
		},
		"what says that it is of another pod": {
			pods: []cri.Pod{foreign}, want: []allocation.Change{{Put: only(a, "init")}},
			err: `it is of pod "b"`,
		},
		"of another boot, Allocate is called again": {
			boot: "boot-0", pods: []cri.Pod{annotatedSandbox(t, of("boot-0", a), "init")},
			want: []allocation.Change{{Put: void}},
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
			seen := rebuilding{}
			for _, c := range got {
				if err := seen.claim(c.Put); err != nil {
					t.Errorf("assigned twice: %v", err)
				}
			}
		})
	}
}

// TestSandboxAnnotationIsBounded: of thousands of devices the answers are not in it, or of the last
// containers nothing.
func TestSandboxAnnotationIsBounded(t *testing.T) {
	sized := func(devices, answer int) allocation.Container {
		c := allocation.Container{allocation.CPUs(cpuset.New(devices))}
		d := allocation.DeviceSet{Resource: "example.com/gpu", Answer: make([]byte, answer)}
		for i := range devices {
			d.IDs = append(d.IDs, fmt.Sprintf("GPU-%036d", i))
		}
		return c.With(allocation.Devices{d})
	}
	for name, test := range map[string]struct {
		init, main     allocation.Container
		kept, answered []string
	}{
		"small": {sized(8, 100), sized(300, 100), []string{"init", "main"},
			[]string{"init", "main"}},
		"long answers":        {sized(8, 100), sized(8, 40_000), []string{"init", "main"}, nil},
		"the last has many":   {sized(8, 100), sized(5000, 100), []string{"init"}, nil},
		"the first has many":  {sized(5000, 100), sized(8, 100), nil, nil},
		"both, just too many": {sized(400, 0), sized(400, 0), []string{"init"}, nil},
		"both, and just enough": {sized(300, 0), sized(300, 0), []string{"init", "main"},
			[]string{"init", "main"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := allocation.Pod{UID: "a", BootID: "boot-1", Containers: map[string]allocation.Container{
				"init": test.init, "main": test.main,
			}}
			observed := annotatedSandbox(t, p)
			if n := len(observed.Sandboxes[0].Annotations[Annotation]); n > longest {
				t.Errorf("the annotation has %d bytes", n)
			}
			got, err := SandboxAnnotation(observed, "boot-1")
			if err != nil {
				t.Fatal(err)
			}
			var kept, answered []string
			for _, name := range []string{"init", "main"} {
				c, ok := got[name]
				if !ok {
					continue
				}
				kept = append(kept, name)
				if c.Devices()[0].Answer != nil {
					answered = append(answered, name)
				}
				diff := cmp.Diff(p.Containers[name].Devices()[0].IDs, c.Devices()[0].IDs)
				if diff != "" {
					t.Errorf("devices of %s (-want +got):\n%s", name, diff)
				}
			}
			diff := cmp.Diff([][]string{test.kept, test.answered}, [][]string{kept, answered})
			if diff != "" {
				t.Errorf("kept, answered (-want +got):\n%s", diff)
			}
			p.Containers = got
			want := len(kept) < 2 || len(answered) < 2
			if len(kept) > 0 && p.Incomplete(twoStages) != want {
				t.Errorf("incomplete is not %t", want)
			}
		})
	}
}

// FuzzSandboxAnnotation reads what a sandbox's annotation says: an error, or what can be said
// again.
func FuzzSandboxAnnotation(f *testing.F) {
	text, err := DescribePod(twoStages, allocationtest.Pod("a"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(`{"uid":"a","containers":[{"name":"main","cpus":"0-3"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		said := func(text string) (map[string]allocation.Container, error) {
			return SandboxAnnotation(cri.Pod{UID: "a", Sandboxes: []cri.Sandbox{
				{Ready: true, Annotations: map[string]string{Annotation: text}},
			}}, "boot-1")
		}
		first, err := said(text)
		if err != nil {
			return
		}
		first = map[string]allocation.Container{"init": first["init"], "main": first["main"]}
		p := allocation.Pod{UID: types.UID("a"), BootID: "boot-1", Containers: first}
		again, err := describedPod(p, []string{"init", "main"})
		if err != nil {
			t.Fatal(err)
		}
		second, err := said(again)
		if err != nil {
			t.Fatalf("what was described cannot be read: %v", err)
		}
		for name, c := range first {
			if !same(name, c, second[name]) {
				t.Fatalf("container %s is %+v, read again %+v", name, c, second[name])
			}
		}
	})
}
