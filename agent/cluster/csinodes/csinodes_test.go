package csinodes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/numalet/numalet/agent/storage/volume/csi"
	"github.com/numalet/numalet/internal/await"
)

// world is an API server with a node and its drivers.
type world struct {
	*Writer
	client  *fake.Clientset
	changed chan struct{}

	mu      sync.Mutex // guards the fields below
	node    *v1.Node
	drivers []csi.Node
	ready   int
	events  []string
	asked   map[string]int
	writes  int
	fail    error
	sockets map[string]bool // of drivers that are not registered
	left    map[string]bool // drivers that were
}

func start(t *testing.T, objects ...runtime.Object) *world {
	w := &world{client: fake.NewClientset(objects...), changed: make(chan struct{}, 1), asked: map[string]int{}}
	w.client.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if a.GetVerb() != "get" {
			w.writes++
		}
		if a.GetResource().Resource == "csidrivers" {
			return false, nil, nil
		}
		return w.fail != nil && a.GetVerb() != "get", nil, w.fail
	})
	w.Writer = New(Config{Client: w.client, Changed: w.changed,
		Node:    func() *v1.Node { w.mu.Lock(); defer w.mu.Unlock(); return w.node },
		Drivers: func() []csi.Node { w.mu.Lock(); defer w.mu.Unlock(); return slices.Clone(w.drivers) },
		Ready:   func() { w.mu.Lock(); defer w.mu.Unlock(); w.ready++ },
		Tell: func(_, reason, message string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.events = append(w.events, reason+": "+message)
		},
		Ask:       func(driver string) { w.mu.Lock(); defer w.mu.Unlock(); w.asked[driver]++ },
		Left:      func(driver string) bool { w.mu.Lock(); defer w.mu.Unlock(); return w.left[driver] },
		HasSocket: func(driver string) bool { w.mu.Lock(); defer w.mu.Unlock(); return w.sockets[driver] }})
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { _ = w.Run(ctx) })
	t.Cleanup(func() { cancel(); ended.Wait() })
	return w
}

// register creates the node's object, as the agent does when it starts.
func (w *world) register(t *testing.T, uid types.UID) {
	t.Helper()
	api := w.client.CoreV1().Nodes()
	_ = api.Delete(t.Context(), "me", metav1.DeleteOptions{}) // there may be none
	is, err := api.Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "me", UID: uid,
		Labels: map[string]string{"zone": "z1"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.set(func() { w.node = is })
}

// set changes the world and waits until nothing moves.
func (w *world) set(change func()) {
	w.mu.Lock()
	change()
	w.mu.Unlock()
	await.Wake(w.changed)
	synctest.Wait()
}

// reread has the agent see the node that the API server has.
func (w *world) reread(t *testing.T) *v1.Node {
	t.Helper()
	is, err := w.client.CoreV1().Nodes().Get(t.Context(), "me", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.set(func() { w.node = is })
	return is
}

func (w *world) object(t *testing.T) *storagev1.CSINode {
	t.Helper()
	is, err := w.client.StorageV1().CSINodes().Get(t.Context(), "me", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return is
}

// names returns the drivers of the CSINode.
func (w *world) names(t *testing.T) (out []string) {
	t.Helper()
	for _, d := range w.object(t).Spec.Drivers {
		out = append(out, d.Name)
	}
	return out
}

// TestCSINode: before any driver there is a CSINode, and the node is not ready before. Drivers come and
// go in it, with all that they say; labels of topology stay, as with the kubelet.
func TestCSINode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		synctest.Wait()
		if w.Unready() != "CSINode is not yet initialized" || w.writes != 0 {
			t.Errorf("without a node: %q, %d writes", w.Unready(), w.writes)
		}
		w.register(t, "1")
		if w.Unready() != "" || w.ready != 1 {
			t.Errorf("with a CSINode: %q, told %d times", w.Unready(), w.ready)
		}
		is := w.object(t)
		if len(is.Spec.Drivers) != 0 || len(is.OwnerReferences) != 1 || is.OwnerReferences[0].UID != "1" ||
			is.Annotations[annotationMigrated] != strings.Join(migrated, ",") {
			t.Errorf("the CSINode is %+v", is)
		}
		w.set(func() {
			w.drivers = []csi.Node{{Driver: "b", NodeID: "i-b"},
				{Driver: "a", NodeID: "i-a", MaxVolumes: 1 << 40, Topology: map[string]string{"zone": "z1", "rack": "r1"}}}
		})
		is = w.object(t)
		if got := w.names(t); !slices.Equal(got, []string{"a", "b"}) {
			t.Fatalf("the CSINode has %v", got)
		}
		a, b := is.Spec.Drivers[0], is.Spec.Drivers[1]
		if a.NodeID != "i-a" || !slices.Equal(a.TopologyKeys, []string{"rack", "zone"}) ||
			*a.Allocatable.Count != 1<<31-1 || b.Allocatable != nil {
			t.Errorf("the CSINode has %+v and %+v", a, b)
		}
		node := w.reread(t)
		if node.Labels["rack"] != "r1" || node.Annotations[annotationIDs] != `{"a":"i-a","b":"i-b"}` {
			t.Errorf("the node is %+v", node.ObjectMeta)
		}
		before := w.writes
		w.set(func() {})
		if w.writes != before {
			t.Errorf("%d writes of what is there", w.writes-before)
		}
		w.set(func() { w.drivers, w.left = w.drivers[:1], map[string]bool{"a": true} })
		node = w.reread(t)
		if got := w.names(t); !slices.Equal(got, []string{"b"}) || node.Labels["rack"] != "r1" ||
			node.Annotations[annotationIDs] != `{"b":"i-b"}` {
			t.Errorf("after one is gone there are %v, and the node is %+v", got, node.ObjectMeta)
		}
		w.set(func() { w.drivers, w.left["b"] = nil, true })
		if _, has := w.reread(t).Annotations[annotationIDs]; has || len(w.names(t)) != 0 {
			t.Error("something is left of the last driver")
		}
	})
}

// TestCollision: a driver whose topology contradicts a label is refused, in the kubelet's words, and no
// other one is. It is taken once the label is another.
func TestCollision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.register(t, "1")
		w.set(func() {
			w.drivers = []csi.Node{{Driver: "bad", NodeID: "x", Topology: map[string]string{"zone": "z2", "rack": "r1"}},
				{Driver: "good", NodeID: "y"}, {Driver: "late", Topology: map[string]string{"rack": "r2"}},
				{Driver: "long", NodeID: strings.Repeat("x", longestID+1)}}
		})
		node := w.reread(t)
		if _, labelled := node.Labels["rack"]; labelled || !slices.Equal(w.names(t), []string{"good"}) {
			t.Errorf("taken are %v, the labels %v", w.names(t), node.Labels)
		}
		if len(w.events) != 1 || !strings.Contains(w.events[0], `detected topology value collision: driver reported `+
			`"zone":"z2" but existing label is "zone":"z1"`) {
			t.Errorf("told was %q", w.events)
		}
		w.mu.Lock()
		w.node = w.node.DeepCopy()
		w.node.Labels["zone"] = "z2"
		w.mu.Unlock()
		time.Sleep(lastPause + time.Second)
		if !slices.Equal(w.names(t), []string{"bad", "good"}) {
			t.Errorf("with another label there are %v", w.names(t))
		}
	})
}

// TestInvalidTopology: a driver whose topology the API server would refuse is left out, with the reason,
// and no other one is; the node is ready.
func TestInvalidTopology(t *testing.T) {
	for _, topology := range []map[string]string{
		{"bad key": "z"}, {"": "z"}, {"zone/": "z"}, {"z": "bad value"}, {"z": strings.Repeat("x", 64)},
		{"node-restriction.kubernetes.io/z": "z"}, {"topology.kubernetes.io/rack": "z"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := start(t)
			w.set(func() {
				w.drivers = []csi.Node{{Driver: "bad", NodeID: "x", Topology: topology}, {Driver: "good", NodeID: "y",
					Topology: map[string]string{"example.com/rack": "r1"}}}
			})
			w.register(t, "1")
			node := w.reread(t)
			if !slices.Equal(w.names(t), []string{"good"}) || node.Labels["example.com/rack"] != "r1" ||
				len(node.Labels) != 2 || w.Unready() != "" {
				t.Errorf("with %q taken are %v, the labels %v", topology, w.names(t), node.Labels)
			}
			if len(w.events) != 1 || !strings.Contains(w.events[0], "CSI driver bad is not in the node's CSINode") {
				t.Errorf("told was %q", w.events)
			}
		})
	}
}

// TestAgain: what others change is mended: a CSINode that is deleted, one of an earlier node of that
// name, one that another writer changes at the same time. Plugins that others have migrated stay.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "me",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "me", UID: "0"}},
			Annotations:     map[string]string{annotationMigrated: "example.com/old"}},
			Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "stale", NodeID: "x"}}}})
		w.set(func() { w.drivers = []csi.Node{{Driver: "a", NodeID: "x"}} })
		w.register(t, "1")
		is := w.object(t)
		if is.OwnerReferences[0].UID != "1" || len(is.OwnerReferences) != 1 || !slices.Equal(w.names(t), []string{"a"}) ||
			!strings.Contains(is.Annotations[annotationMigrated], "example.com/old") {
			t.Errorf("the CSINode is %+v", is)
		}
		if err := w.client.StorageV1().CSINodes().Delete(t.Context(), "me", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.register(t, "2")
		if is := w.object(t); is.OwnerReferences[0].UID != "2" || !slices.Equal(w.names(t), []string{"a"}) {
			t.Errorf("after a new registration it is %+v", is)
		}
		_ = w.client.StorageV1().CSINodes().Delete(t.Context(), "me", metav1.DeleteOptions{})
		time.Sleep(again + time.Second)
		if !slices.Equal(w.names(t), []string{"a"}) {
			t.Errorf("a deleted one was not made again")
		}
	})
}

// TestConflicts: requests that fail are repeated, in pauses, and an id that cannot change in place has
// the object made anew.
func TestConflicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.set(func() {
			w.fail = apierrors.NewConflict(schema.GroupResource{Resource: "csinodes"}, "me", errors.New("x"))
		})
		w.mu.Lock()
		w.fail = nil
		w.mu.Unlock()
		w.register(t, "1")
		w.set(func() {
			w.fail = apierrors.NewConflict(schema.GroupResource{Resource: "csinodes"}, "me", errors.New("x"))
			w.drivers = []csi.Node{{Driver: "a", NodeID: "x"}}
		})
		before := w.writes
		time.Sleep(10 * time.Minute)
		w.mu.Lock()
		tries := w.writes - before
		w.fail = nil
		w.mu.Unlock()
		if tries < 20 || tries > 120 {
			t.Errorf("%d tries in ten minutes", tries)
		}
		time.Sleep(2 * lastPause)
		synctest.Wait()
		if !slices.Equal(w.names(t), []string{"a"}) {
			t.Errorf("the CSINode has %v", w.names(t))
		}
		var history []string
		var last map[string]string // by the update before
		w.client.PrependReactor("*", "csinodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if a.GetVerb() == "delete" {
				history = append(history, "deleted")
			}
			update, is := a.(clienttesting.UpdateAction)
			if !is {
				return false, nil, nil
			}
			ids := idsOf(update.GetObject().(*storagev1.CSINode))
			history = append(history, fmt.Sprint(ids))
			for name, id := range ids {
				if was := last[name]; was != "" && was != id {
					return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "CSINode"}, "me", nil)
				}
			}
			last = ids
			return false, nil, nil
		})
		w.set(func() { w.drivers = append(w.drivers, csi.Node{Driver: "b", NodeID: "x"}) })
		w.set(func() { w.drivers = []csi.Node{{Driver: "a", NodeID: "y"}, w.drivers[1]} })
		want := []string{"map[a:x b:x]", "map[b:x]", "map[a:y b:x]"}
		if !slices.Equal(history, want) {
			t.Errorf("the CSINode was %q, want %q", history, want)
		}
	})
}

// idsOf returns the ids of the node by driver.
func idsOf(n *storagev1.CSINode) map[string]string {
	out := map[string]string{}
	for _, d := range n.Spec.Drivers {
		out[d.Name] = d.NodeID
	}
	return out
}

// TestEarlier: what an earlier agent wrote of drivers stays until they register, within the grace or as
// long as they have a socket. A driver that registers and goes is removed at once.
func TestEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var has []storagev1.CSINodeDriver
		for _, name := range []string{"comes", "gone", "hangs", "leaves"} {
			has = append(has, storagev1.CSINodeDriver{Name: name, NodeID: "i-" + name, TopologyKeys: []string{"rack"},
				Allocatable: &storagev1.VolumeNodeResources{Count: new(int32)}})
		}
		w := start(t, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "me",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "me", UID: "1"}},
			Annotations:     map[string]string{annotationMigrated: strings.Join(migrated, ",")}},
			Spec: storagev1.CSINodeSpec{Drivers: has}})
		w.set(func() { w.sockets = map[string]bool{"hangs": true} })
		w.register(t, "1")
		if got := w.object(t).Spec.Drivers; !reflect.DeepEqual(got, has) {
			t.Errorf("after the start the CSINode has %+v, before it had %+v", got, has)
		}
		ids := `{"comes":"i-comes","gone":"i-gone","hangs":"i-hangs","leaves":"i-leaves"}`
		if node := w.reread(t); node.Annotations[annotationIDs] != ids {
			t.Errorf("the node has the ids %s", node.Annotations[annotationIDs])
		}
		w.set(func() {
			w.drivers = []csi.Node{{Driver: "leaves", NodeID: "i-leaves"}, {Driver: "comes", NodeID: "new"}}
		})
		w.set(func() { w.drivers, w.left = w.drivers[1:], map[string]bool{"leaves": true} })
		want := map[string]string{"comes": "new", "gone": "i-gone", "hangs": "i-hangs"}
		if got := idsOf(w.object(t)); !maps.Equal(got, want) {
			t.Errorf("after one came and one left the CSINode has %v", got)
		}
		time.Sleep(grace + again + time.Second)
		if got, want := w.names(t), []string{"comes", "hangs"}; !slices.Equal(got, want) {
			t.Errorf("after the grace the CSINode has %v", got)
		}
		w.set(func() { w.sockets = nil })
		time.Sleep(again + time.Second)
		if got, want := w.names(t), []string{"comes"}; !slices.Equal(got, want) {
			t.Errorf("without its socket, the one that hung is there: %v", got)
		}
		w.set(func() { w.drivers, w.left["comes"] = nil, true })
		if len(w.names(t)) != 0 {
			t.Errorf("the last one left, and there are %v", w.names(t))
		}
	})
}

// TestPeriods: a driver is asked anew in its CSIDriver's period, until it is gone.
func TestPeriods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seconds := int64(30)
		w := start(t, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Spec: storagev1.CSIDriverSpec{NodeAllocatableUpdatePeriodSeconds: &seconds}})
		w.register(t, "1")
		w.set(func() { w.drivers = []csi.Node{{Driver: "a", NodeID: "x"}, {Driver: "b", NodeID: "x"}} })
		time.Sleep(301 * time.Second)
		w.mu.Lock()
		if want := map[string]int{"a": 10}; !maps.Equal(w.asked, want) {
			t.Errorf("asked were %v, want %v", w.asked, want)
		}
		w.mu.Unlock()
		w.set(func() { w.drivers, w.asked = nil, map[string]int{} })
		time.Sleep(time.Hour)
		if len(w.asked) > 0 {
			t.Errorf("%v were asked that are gone", w.asked)
		}
	})
}

// TestReadyBefore: a node that was ready stays ready while the agent starts again.
func TestReadyBefore(t *testing.T) {
	for status, want := range map[v1.ConditionStatus]string{
		v1.ConditionTrue: "", v1.ConditionFalse: "CSINode is not yet initialized",
	} {
		node := &v1.Node{Status: v1.NodeStatus{Conditions: []v1.NodeCondition{
			{Type: v1.NodeReady, Status: status}}}}
		if got := New(Config{Node: func() *v1.Node { return node }}).Unready(); got != want {
			t.Errorf("Ready=%s: %q, want %q", status, got, want)
		}
	}
}
