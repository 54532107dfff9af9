package nodes

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/podtest"
)

// rig is a node at an API server in memory, in virtual time.
type rig struct {
	*fake.Clientset
	t       *testing.T
	nodes   *Nodes
	changed chan struct{}

	mu         sync.Mutex // guards what is below
	facts      nodestatus.Facts
	events     []string
	unanswered int
	restored   int
	wrote      int
}

func newRig(t *testing.T, i Identity, existing ...runtime.Object) *rig {
	i.Name = "n"
	r := &rig{
		Clientset: fake.NewClientset(existing...), t: t, changed: make(chan struct{}, 1),
		facts: nodestatus.Facts{
			Capacity:    podtest.Amounts("cpu=4 memory=1Gi pods=110"),
			Allocatable: podtest.Amounts("cpu=3 memory=512Mi pods=110"),
		},
	}
	r.nodes = New(Config{
		Main: r, Heartbeats: r, Identity: i, Register: true,
		Periods: Periods{Update: 10 * time.Second, Report: 5 * time.Minute,
			Lease: 40 * time.Second},
		Facts: func() nodestatus.Facts {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.facts
		},
		Changed: r.changed,
		Wrote:   func(nodestatus.Facts) { r.count(&r.wrote) },
		Tell: func(eventType, reason, _ string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.events = append(r.events, eventType+" "+reason)
		},
		Unanswered: func() { r.count(&r.unanswered) }, Restored: func() { r.count(&r.restored) },
	})
	return r
}

func (r *rig) count(n *int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*n++
}

// run runs the node until the test's bubble ends.
func (r *rig) run() (stop func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan error, 1)
	go func() { done <- r.nodes.Run(ctx) }()
	synctest.Wait()
	return func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Error(err)
		}
	}
}

// change changes the facts.
func (r *rig) change(f func(*nodestatus.Facts)) {
	r.mu.Lock()
	f(&r.facts)
	r.mu.Unlock()
	await.Wake(r.changed)
}

func (r *rig) node() *v1.Node {
	r.t.Helper()
	n, err := r.CoreV1().Nodes().Get(r.t.Context(), "n", metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// made counts the requests of a verb and a resource, and forgets those of all.
func (r *rig) made(verb, of string) (count int) {
	for _, a := range r.Actions() {
		if a.Matches(verb, of) {
			count++
		}
	}
	return count
}

// refuse has the next requests of a verb fail.
func (r *rig) refuse(verb string, errs ...error) {
	var mu sync.Mutex
	r.PrependReactor(verb, "nodes", func(kubetesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		if len(errs) == 0 {
			return false, nil, nil
		}
		err := errs[0]
		errs = errs[1:]
		return true, nil, err
	})
}

func nodesResource() schema.GroupResource { return schema.GroupResource{Resource: "nodes"} }

func TestRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Identity{
			Labels:     map[string]string{"x.io/y": "z", v1.LabelTopologyZone: "a"},
			Taints:     []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoExecute}},
			ProviderID: "cloud://1", External: true, NodeIP: "10.0.0.1", Attach: true,
		})
		r.refuse("create", errors.New("connection refused"), apierrors.NewInternalError(errors.New("x")))
		defer r.run()()
		time.Sleep(time.Second)
		n := r.node()
		for key, want := range map[string]string{
			"kubernetes.io/hostname": "n", "kubernetes.io/os": "linux", "x.io/y": "z",
			"beta.kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "a",
		} {
			if n.Labels[key] != want {
				t.Errorf("label %s is %q", key, n.Labels[key])
			}
		}
		if n.Annotations[annotationAttach] != "true" || n.Annotations[annotationNodeIP] != "10.0.0.1" ||
			n.Spec.ProviderID != "cloud://1" {
			t.Errorf("annotations %v, provider %s", n.Annotations, n.Spec.ProviderID)
		}
		if len(n.Spec.Taints) != 2 || n.Spec.Taints[1].Key != taintExternal {
			t.Errorf("taints %v", n.Spec.Taints)
		}
		if n.Status.Capacity.Cpu().Value() != 4 || len(n.Status.Conditions) != 4 {
			t.Errorf("created with the status %+v", n.Status)
		}
		lease, err := r.CoordinationV1().Leases("kube-node-lease").Get(t.Context(), "n",
			metav1.GetOptions{})
		if err != nil || len(lease.OwnerReferences) != 1 ||
			lease.OwnerReferences[0].Name != "n" || *lease.Spec.LeaseDurationSeconds != 40 ||
			*lease.Spec.HolderIdentity != "n" {
			t.Errorf("lease %+v, %v", lease, err)
		}
		if r.unanswered != 1 {
			t.Errorf("the API server did not answer %d times, told %d", 1, r.unanswered)
		}
		want := "Normal Starting"
		if r.events[0] != want || !slices.Contains(r.events, "Normal NodeHasSufficientMemory") {
			t.Errorf("events %q", r.events)
		}
	})
}

// TestExistingNode is brought in line as the kubelet does, and keeps what others gave it.
func TestExistingNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Identity{
			Labels: map[string]string{"x.io/y": "new", v1.LabelTopologyZone: "b"}, Attach: true,
		}, &v1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: "n", UID: "u", Labels: map[string]string{
					"x.io/y": "old", v1.LabelTopologyZone: "a", "role": "gpu",
				},
				Annotations: map[string]string{"a": "b", annotationNodeIP: "1.2.3.4"},
			},
			Spec: v1.NodeSpec{Unschedulable: true, Taints: []v1.Taint{{Key: "theirs"}}},
			Status: v1.NodeStatus{Capacity: v1.ResourceList{
				"foreign.io/x": resource.MustParse("3"),
			}},
		})
		defer r.run()()
		n := r.node()
		if n.Labels["x.io/y"] != "old" || n.Labels[v1.LabelTopologyZone] != "b" ||
			n.Labels["role"] != "gpu" || n.Labels["kubernetes.io/hostname"] != "n" {
			t.Errorf("labels %v", n.Labels)
		}
		if _, kept := n.Annotations[annotationNodeIP]; kept || n.Annotations["a"] != "b" ||
			n.Annotations[annotationAttach] != "true" {
			t.Errorf("annotations %v", n.Annotations)
		}
		if !n.Spec.Unschedulable || len(n.Spec.Taints) != 1 {
			t.Errorf("spec %+v", n.Spec)
		}
		theirs := n.Status.Allocatable["foreign.io/x"]
		if theirs.Value() != 3 || n.Status.Capacity.Cpu().Value() != 4 {
			t.Errorf("status %+v", n.Status)
		}
	})
}

// TestStatusIsWrittenWhenItChanged: at once, and else once in the report period.
func TestStatusIsWrittenWhenItChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Identity{})
		defer r.run()()
		time.Sleep(time.Second)
		r.ClearActions()
		time.Sleep(2 * time.Minute)
		if got := r.made("patch", "nodes"); got != 0 {
			t.Errorf("%d statuses although nothing changed", got)
		}
		if got := r.made("update", "leases"); got < 11 || got > 13 {
			t.Errorf("%d renewals of the lease in two minutes, want one each 10 s", got)
		}
		if got := r.made("get", "nodes"); got != 0 {
			t.Errorf("the node was asked for %d times", got)
		}
		r.change(func(f *nodestatus.Facts) {
			f.Devices.Capacity = podtest.Amounts("x.io/gpu=8")
			f.Devices.Allocatable = podtest.Amounts("x.io/gpu=7")
		})
		time.Sleep(100 * time.Millisecond)
		if gpus := r.node().Status.Capacity["x.io/gpu"]; gpus.Value() != 8 {
			t.Error("a new resource is not on the node after 100 ms")
		}
		r.change(func(f *nodestatus.Facts) { f.NotReady = []string{"container runtime is down"} })
		time.Sleep(100 * time.Millisecond)
		if c := r.node().Status.Conditions[3]; c.Status != v1.ConditionFalse {
			t.Errorf("not ready: %+v", c)
		}
		if got := r.made("patch", "nodes"); got != 2 {
			t.Errorf("%d statuses for two changes", got)
		}
		if !slices.Contains(r.events, "Normal NodeNotReady") {
			t.Errorf("events %q", r.events)
		}
		r.ClearActions()
		time.Sleep(30 * time.Minute)
		if got := r.made("patch", "nodes"); got < 5 || got > 9 {
			t.Errorf("%d reports in half an hour, want one each 5 min", got)
		}
	})
}

// TestFailures: a status is tried five times, on what the API server has from the second on.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Identity{})
		defer r.run()()
		time.Sleep(time.Second)
		r.ClearActions()
		conflict := apierrors.NewConflict(nodesResource(), "n", errors.New("x"))
		r.refuse("patch", conflict, conflict, errors.New("broken pipe"), conflict, conflict, conflict)
		r.change(func(f *nodestatus.Facts) { f.Port = 1 })
		synctest.Wait()
		if got := r.made("patch", "nodes"); got != 5 {
			t.Errorf("%d tries at once, want 5", got)
		}
		if got := r.made("get", "nodes"); got != 4 {
			t.Errorf("asked %d times, want before each try but the first", got)
		}
		if r.unanswered != 1 {
			t.Errorf("the API server did not answer once, told %d times", r.unanswered)
		}
		time.Sleep(11 * time.Second)
		if got := r.node().Status.DaemonEndpoints.KubeletEndpoint.Port; got != 1 {
			t.Errorf("port %d after the next period", got)
		}
	})
}

// TestDeletedNode stays away, and is written to when somebody creates it.
func TestDeletedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Identity{})
		defer r.run()()
		time.Sleep(time.Second)
		if err := r.CoreV1().Nodes().Delete(t.Context(), "n", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r.ClearActions()
		r.change(func(f *nodestatus.Facts) { f.Port = 2 })
		time.Sleep(time.Minute)
		for _, verb := range []string{"create", "patch", "get"} {
			if got := r.made(verb, "nodes"); got != 0 {
				t.Errorf("%d times %s after the node was deleted", got, verb)
			}
		}
		if r.nodes.Node() != nil {
			t.Error("the node is known")
		}
		if _, err := r.CoreV1().Nodes().Create(t.Context(), &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "other"},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		if got := r.node().Status.DaemonEndpoints.KubeletEndpoint.Port; got != 2 {
			t.Errorf("port %d of a node that was created again", got)
		}
	})
}

// TestCordon: what others change is seen, and told.
func TestCordon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Identity{})
		defer r.run()()
		time.Sleep(time.Second)
		for _, is := range []bool{true, false} {
			n := r.node()
			n.Spec.Unschedulable = is
			if _, err := r.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		got := strings.Join(r.events, ", ")
		if !strings.HasSuffix(got, "Normal NodeNotSchedulable, Normal NodeSchedulable") {
			t.Errorf("events %s", got)
		}
	})
}

// TestReread: what the watch has yet to tell of is known at once to whom asks; without an answer the node
// stays as it was known.
func TestReread(t *testing.T) {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "7",
		Labels: map[string]string{"gpu": "h100"}}}
	r := newRig(t, Identity{}, n)
	r.nodes.cached.put(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "5"}})
	for _, refuse := range []bool{false, true} {
		r.PrependReactor("get", "nodes", func(kubetesting.Action) (bool, runtime.Object, error) {
			return refuse, nil, errors.New("no answer")
		})
		r.nodes.Reread(t.Context())
		if got := r.nodes.Node().Labels["gpu"]; got != "h100" {
			t.Errorf("refused %t: the label is %q", refuse, got)
		}
	}
}

// TestFlapping: facts that change without end do not become requests without end.
func TestFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Identity{})
		defer r.run()()
		time.Sleep(time.Second)
		r.ClearActions()
		for i := range 6000 {
			r.change(func(f *nodestatus.Facts) { f.Port = int32(i) })
			time.Sleep(10 * time.Millisecond)
		}
		if got := r.made("patch", "nodes"); got > 90 {
			t.Errorf("%d statuses in a minute", got)
		}
		time.Sleep(2 * time.Second)
		if got := r.node().Status.DaemonEndpoints.KubeletEndpoint.Port; got != 5999 {
			t.Errorf("the last port is %d", got)
		}
	})
}

// TestLeaseOfAForeignHolder: a lease that somebody else wrote another holder and another duration into
// is the node's with the next renewal.
func TestLeaseOfAForeignHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		holder, long := "somebody", int32(86400)
		r := newRig(t, Identity{}, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: v1.NamespaceNodeLease, Name: "n"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &long},
		})
		defer r.run()()
		time.Sleep(11 * time.Second)
		l, err := r.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(t.Context(), "n",
			metav1.GetOptions{})
		if err != nil || *l.Spec.HolderIdentity != "n" || *l.Spec.LeaseDurationSeconds != 40 {
			t.Errorf("renewed as %+v, %v", l, err)
		}
	})
}

// TestLeaseDeleted: a lease that somebody deletes is there again with the next renewal, and so is one
// that the API server does not give for a while; it goes with the node.
func TestLeaseDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Identity{})
		defer r.run()()
		leases := r.CoordinationV1().Leases(v1.NamespaceNodeLease)
		var refused atomic.Bool
		r.PrependReactor("*", "leases", func(kubetesting.Action) (bool, runtime.Object, error) {
			return refused.Load(), nil, apierrors.NewInternalError(errors.New("etcd is away"))
		})
		for _, refuse := range []bool{false, true} {
			time.Sleep(11 * time.Second)
			if err := leases.Delete(t.Context(), "n", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if refuse {
				refused.Store(true)
				time.Sleep(time.Minute)
				refused.Store(false)
			}
			time.Sleep(11 * time.Second)
			l, err := leases.Get(t.Context(), "n", metav1.GetOptions{})
			if err != nil || len(l.OwnerReferences) != 1 || l.OwnerReferences[0].Name != "n" ||
				time.Since(l.Spec.RenewTime.Time) > 11*time.Second {
				t.Errorf("refused %t: %+v, %v", refuse, l, err)
			}
		}
	})
}

// TestTwoMachinesOfOneName: they contradict each other each period and no more often, and both tell.
// Nobody has rebooted. What is new is told at once.
func TestTwoMachinesOfOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Identity{})
		r.facts.Info.BootID = "ours"
		defer r.run()()
		time.Sleep(time.Second)
		contradict := func() {
			n := r.node()
			if n.Status.NodeInfo.BootID == "theirs" {
				return
			}
			n.Status.NodeInfo.BootID = "theirs"
			if _, err := r.CoreV1().Nodes().UpdateStatus(t.Context(), n,
				metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		contradict()
		if got := r.node().Status.NodeInfo.BootID; got != "ours" {
			t.Errorf("the first time it is not put right at once: %q", got)
		}
		r.ClearActions()
		for range 6000 {
			contradict()
			time.Sleep(10 * time.Millisecond)
		}
		if got := r.made("patch", "nodes"); got < 6 || got > 9 {
			t.Errorf("%d statuses in a minute", got)
		}
		r.change(func(f *nodestatus.Facts) { f.Port = 77 })
		synctest.Wait()
		if got := r.node().Status; got.NodeInfo.BootID != "ours" ||
			got.DaemonEndpoints.KubeletEndpoint.Port != 77 {
			t.Errorf("what is new waits: %+v", got)
		}
		got := strings.Join(r.events, ", ")
		if strings.Count(got, ReasonNameShared) != 1 || strings.Contains(got, "Rebooted") {
			t.Errorf("events %s", got)
		}
	})
}

// TestRestoredFromABackup is seen by the version of the lease, once.
func TestRestoredFromABackup(t *testing.T) {
	r := newRig(t, Identity{})
	prepare := func(version string) error {
		return r.nodes.prepare(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{ResourceVersion: version},
		})
	}
	if err := prepare(""); !errors.Is(err, errNoNode) {
		t.Errorf("the lease of no node: %v", err)
	}
	r.nodes.cached.put(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	for i, v := range []string{"", "7", "9", "10", "8", "11", ""} {
		if err := prepare(v); err != nil {
			t.Fatal(err)
		}
		if want := map[bool]int{true: 1}[i >= 4]; r.restored != want {
			t.Errorf("at version %q: restored %d times, want %d", v, r.restored, want)
		}
	}
}

// TestRestoredSinceTheLease: a backup of after the lease's last renewal is seen by the node's version.
func TestRestoredSinceTheLease(t *testing.T) {
	for version, want := range map[string]int{"9": 1, "20": 0, "21": 0, "": 0} {
		r := newRig(t, Identity{})
		last := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "20"}}
		r.PrependReactor("patch", "nodes", func(kubetesting.Action) (bool, runtime.Object, error) {
			answer := last.DeepCopy()
			answer.ResourceVersion = version
			return true, answer, nil
		})
		if err := r.nodes.write(t.Context(), last); err != nil {
			t.Fatal(err)
		}
		if r.restored != want {
			t.Errorf("at version %q: restored %d times, want %d", version, r.restored, want)
		}
	}
}

// TestNewestCounts: answers and the watch come in any order.
func TestNewestCounts(t *testing.T) {
	s := NewKnown()
	at := func(version string) *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{
			UID: "u", Name: "a" + version, ResourceVersion: version,
		}}
	}
	for _, step := range []struct {
		version, want string
	}{{"5", "a5"}, {"3", "a5"}, {"5", "a5"}, {"10", "a10"}} {
		s.put(at(step.version))
		if got := s.Get(); got.Name != step.want {
			t.Errorf("after %s: %s, want %s", step.version, got.Name, step.want)
		}
	}
	s.forget()
	if _, newer := s.put(at("2")); !newer {
		t.Error("after all was forgotten the version counts")
	}
}

// TestPatch: what is gone is removed, and addresses of one type do not take each other's place.
func TestPatch(t *testing.T) {
	r := newRig(t, Identity{})
	with := func(ips ...string) *v1.Node {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		for _, ip := range ips {
			n.Status.Addresses = append(n.Status.Addresses,
				v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
		}
		n.Status.Capacity = v1.ResourceList{"cpu": resource.MustParse("1")}
		return n
	}
	old := with("10.0.0.1", "fd00::1")
	old.Status.Capacity["gone.io/gpu"] = resource.MustParse("1")
	if _, err := r.CoreV1().Nodes().Create(t.Context(), old, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := r.nodes.patch(t.Context(), old, with("10.0.0.2", "fd00::1", "fd00::2"))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Status.Addresses) != 3 || got.Status.Addresses[0].Address != "10.0.0.2" ||
		got.Status.Addresses[2].Address != "fd00::2" {
		t.Errorf("addresses %v", got.Status.Addresses)
	}
	if _, there := got.Status.Capacity["gone.io/gpu"]; there || len(got.Status.Capacity) != 1 {
		t.Errorf("capacity %v", got.Status.Capacity)
	}
}
