package allocation_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/allocationtest"
	"github.com/numalet/numalet/agent/placement/allocation/handover"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

// licensed is a pod with two CPUs of its own that uses a license.
func licensed(uid string) *v1.Pod {
	pod := podtest.New(uid, podtest.Guaranteed("main cpu=2"))
	pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "shared"}}
	return pod
}

// way takes two pods that share a license of a kind that no other file knows from plan to release.
type way struct {
	*testing.T
	view   allocation.View
	ledger allocation.Ledger
	dir    string
	store  *store.Store
}

func newWay(t *testing.T) *way {
	machine := topologytest.Fixture(t, "playground")
	static, err := cpumanager.NewStatic(machine, cpuset.New(0), cpumanager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := &way{T: t, dir: t.TempDir(), view: allocation.View{
		Machine: machine, CPUs: static, Rules: topology.Rules{Policy: topology.SingleNUMANode},
	}}
	w.open()
	return w
}

func (w *way) open() {
	w.Helper()
	s, err := store.Open(w.dir)
	if err != nil {
		w.Fatal(err)
	}
	w.store = s
	done := make(chan error, 1)
	go func() { done <- s.Run(w.Context()) }()
	w.Cleanup(func() {
		if err := <-done; err != nil {
			w.Error(err)
		}
	})
}

// plan places the pod beside the others in the ledger, and has the driver prepare its license.
func (w *way) plan(pod *v1.Pod) allocation.Pod {
	w.Helper()
	if !w.view.Needs(pod) {
		w.Error("nothing is assigned to the pod")
	}
	w.view.Taken = w.ledger.Beside(pod.UID, nil).Taken
	plan, err := w.view.Plan(pod, nil)
	if err != nil {
		w.Fatal(err)
	}
	held := plan.Pod
	held.BootID = "boot-1"
	main := held.Containers["main"]
	if main.CPUs().Size() != 2 || len(main.Licenses()) != 1 || !held.Incomplete(pod) {
		w.Errorf("planned: %v", held)
	}
	held.Containers["main"] = main.With(allocation.Licenses{{Name: "shared", Devices: []string{"cdi=1"}}})
	if held.Incomplete(pod) {
		w.Errorf("prepared, and still incomplete: %v", held)
	}
	w.ledger = w.ledger.With(held.UID, allocation.Entry{Assigned: allocation.HoldingsOf(held)})
	return held
}

func (w *way) commit(changes ...allocation.Change) {
	w.Helper()
	if err := w.store.Commit(w.Context(), changes...); err != nil {
		w.Fatal(err)
	}
}

// release drops a pod and returns of what others are to hear.
func (w *way) release(p allocation.Pod) []allocation.PendingRelease {
	w.Helper()
	owes := allocation.ReleasesOf(p, allocation.Pod{}, func(string) bool { return true })
	w.commit(allocation.Change{Drop: p.UID, Releases: owes})
	w.ledger = w.ledger.Without(p.UID)
	return w.store.State().PendingReleases
}

// A kind that a test has in one file goes the whole way.
func TestAFurtherKind(t *testing.T) {
	undo := allocation.WithLicenses(t)
	w := newWay(t)
	a, b := w.plan(licensed("a")), w.plan(licensed("b"))
	taken := allocation.HoldingsOf(a)
	if both := a.CPUs().Intersection(b.CPUs()); !both.IsEmpty() {
		t.Errorf("both have CPUs %s", both)
	}
	if taken.Overlaps(allocation.HoldingsOf(b)) || w.ledger.Conflict(b) != "" {
		t.Errorf("pods cannot share a license: %q", w.ledger.Conflict(b))
	}
	if n := w.ledger.Lasting("a", "licenses"); n != 1 {
		t.Errorf("%d licenses last", n)
	}

	w.commit(allocation.Change{Put: a}, allocation.Change{Put: b})
	want := w.store.State()
	w.open()
	same := func(what string, want, got any) {
		t.Helper()
		if diff := cmp.Diff(want, got, allocationtest.Same); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	same("loaded again", containersOf(want.Pods), containersOf(w.store.State().Pods))

	runs := w.annotated(a)
	changes, err := handover.Rebuild(allocation.State{}, []cri.Pod{runs, w.annotated(b)}, "boot-1", nil)
	if err != nil || len(changes) != 2 {
		t.Fatalf("rebuilt: %v, %v", changes, err)
	}
	same("rebuilt from annotations", a.Containers, changes[0].Put.Containers)
	older := want
	older.Pods = map[types.UID]allocation.Pod{"a": a}
	older.Pods["a"] = allocation.Pod{UID: "a", Namespace: "default", Name: "a", BootID: "boot-1",
		Containers: map[string]allocation.Container{"main": a.Containers["main"].With(allocation.Licenses{})}}
	changes, err = handover.Rebuild(older, []cri.Pod{runs}, "boot-1", nil)
	if err != nil || len(changes) != 1 {
		t.Fatalf("a state without the license was not corrected: %v, %v", changes, err)
	}
	same("corrected by what runs", a.Containers, changes[0].Put.Containers)
	void := allocation.WithoutAnswers(a.Containers)["main"]
	if licenses := void.Licenses(); len(licenses) != 1 || licenses[0].Devices != nil || !void.CPUs().Equals(a.CPUs()) {
		t.Errorf("after a reboot: %v", void)
	}

	w.view.Own, w.view.Keep = a, allocation.KeepParts
	w.view.Taken = w.ledger.Beside("a", nil).Taken
	if plan, err := w.view.Plan(licensed("a"), nil); err != nil {
		t.Error(err)
	} else {
		same("kept", a.Containers, plan.Pod.Containers)
	}

	if owed := w.release(a); len(owed) != 1 || owed[0].Kind != "licenses" ||
		!owed[0].Holdings().Licenses().Equal(w.ledger.Beside("", nil).Taken.Licenses()) {
		t.Errorf("a's driver is to hear %v, and the other pod has %v", owed, w.ledger.Beside("", nil).Taken)
	}
	for _, o := range w.release(b) {
		w.commit(allocation.Change{Released: o})
	}
	if left := w.ledger.Beside("", nil).Taken; len(left) > 0 {
		t.Errorf("after the last pod is left: %v", left)
	}
	w.open()
	if s := w.store.State(); len(s.Pods)+len(s.PendingReleases) > 0 {
		t.Errorf("the file has %v", s)
	}

	undo()
	if _, err := store.ReadState(w.dir + "/" + store.FileName); err == nil ||
		!strings.Contains(err.Error(), "state file of version 5, this agent reads versions 1 to 4") {
		t.Errorf("an agent without the kind: %v", err)
	}
}

// annotated is the pod as the runtime has it.
func (w *way) annotated(p allocation.Pod) cri.Pod {
	w.Helper()
	text, err := handover.Describe("main", p.Containers["main"])
	if err != nil {
		w.Fatal(err)
	}
	return cri.Pod{UID: p.UID, Namespace: p.Namespace, Name: p.Name,
		Sandboxes: []cri.Sandbox{{ID: "s", Ready: true}},
		Containers: []cri.Container{{Name: "main", SandboxID: "s", State: cri.ContainerRunning,
			Annotations: map[string]string{handover.Annotation: text}}}}
}

func containersOf(pods map[types.UID]allocation.Pod) map[types.UID]map[string]allocation.Container {
	out := map[types.UID]map[string]allocation.Container{}
	for uid, p := range pods {
		out[uid] = p.Containers
	}
	return out
}
