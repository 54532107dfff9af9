package slices

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/api/resource/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/deviceplugin/dra/places"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

// rig is a follower of slices and an API server, in virtual time.
type rig struct {
	*Slices
	api *fake.Clientset

	mu         sync.Mutex // guards the fields below
	registered bool
	usable     []string
	deletes    []string // "time selector", since the start
	refuse     error    // the result of every deletion
	served     string   // the only version that is served; "": none
	requests   int
}

// run is serve with the present version of the API.
func run(t *testing.T, with []runtime.Object, test func(t *testing.T, r *rig)) {
	t.Helper()
	serve(t, "v1", with, test)
}

// serve runs a follower in a synctest bubble. The API server has these slices and serves that version
// of the API only, "": none. Nothing is deleted before the node is registered.
func serve(t *testing.T, version string, with []runtime.Object, test func(t *testing.T, r *rig)) {
	t.Helper()
	m := topologytest.Fixture(t, "dgx-h100")
	synctest.Test(t, func(t *testing.T) {
		r := &rig{api: fake.NewClientset(with...), served: version}
		began := time.Now()
		r.api.PrependReactor("*", "resourceslices", func(a k8stesting.Action) (bool, runtime.Object,
			error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.requests++
			if a.GetResource().Version != r.served {
				return true, nil, apierrors.NewGenericServerResponse(404, a.GetVerb(),
					schema.GroupResource{Resource: "resourceslices"}, "", "no such resource", 0, true)
			}
			deletion, is := a.(k8stesting.DeleteCollectionActionImpl)
			if !is {
				return false, nil, nil
			}
			r.deletes = append(r.deletes, fmt.Sprintf("%s %s", time.Since(began).Round(time.Second),
				deletion.GetListRestrictions().Fields))
			return true, nil, r.refuse
		})
		r.Slices = New(Config{
			Client: r.api, Node: "n", Attributes: places.Default(),
			Machine: func() *topology.Machine { return m },
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		registered := func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.registered }
		usable := func() []string { r.mu.Lock(); defer r.mu.Unlock(); return slices.Clone(r.usable) }
		go func() { done <- r.Run(ctx, registered, usable) }()
		r.settle()
		test(t, r)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (r *rig) do(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// settle waits until what happened is known.
func (r *rig) settle() { r.wait(100 * time.Millisecond) }

func (r *rig) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (r *rig) put(t *testing.T, one *resourcev1.ResourceSlice) {
	t.Helper()
	api := r.api.ResourceV1().ResourceSlices()
	_, err := api.Update(t.Context(), one, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = api.Create(t.Context(), one, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	r.settle()
}

func (r *rig) drop(t *testing.T, name string) {
	t.Helper()
	if err := r.api.ResourceV1().ResourceSlices().Delete(t.Context(), name,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.settle()
}

// slice returns a slice of one of count slices of the pool "p" of driver gpu.nvidia.com.
func slice(name string, generation, count int64, devices ...resourcev1.Device) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: "gpu.nvidia.com", NodeName: ptr.To("n"), Devices: devices,
			Pool: resourcev1.ResourcePool{Name: "p", Generation: generation, ResourceSliceCount: count},
		},
	}
}

// gpu returns a device with string attributes: name, value, name, value, ...
func gpu(name string, attributes ...string) resourcev1.Device {
	d := resourcev1.Device{Name: name,
		Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}}
	for i := 0; i < len(attributes); i += 2 {
		d.Attributes[resourcev1.QualifiedName(attributes[i])] = resourcev1.DeviceAttribute{
			StringValue: &attributes[i+1]}
	}
	return d
}

const driver = "gpu.nvidia.com"

// at returns the address of a device; "" if its place is unknown.
func (r *rig) at(name string) string { return r.Place(driver, "p", name).PCI }

// Devices are known as slices come and go, and their place is that of the machine's PCI device.
func TestPlaces(t *testing.T) {
	run(t, []runtime.Object{slice("s", 1, 1, gpu("gpu-0", "uuid", "GPU-0", "pcieBusID",
		"00000000:9D:00.0"))}, func(t *testing.T, r *rig) {
		want := claim.Place{UUID: "GPU-0", PCI: "0000:9d:00.0", Root: "pci0000:97",
			Nodes: topology.NewNodeSet(1)}
		if got := r.Place(driver, "p", "gpu-0"); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		news := mailbox.Subscribe(r.Changes())
		r.put(t, slice("s2", 1, 2, gpu("gpu-1", "pcieBusID", "0000:1b:00.0")))
		if r.at("gpu-1") != "0000:1b:00.0" || len(news) == 0 {
			t.Errorf("gpu-1 is at %q, and %d changes were told", r.at("gpu-1"), len(news))
		}
		r.drop(t, "s")
		r.drop(t, "s2")
		for _, name := range []string{"gpu-0", "gpu-1"} {
			if got := r.Place(driver, "p", name); got != (claim.Place{}) {
				t.Errorf("%s is gone and at %+v", name, got)
			}
		}
	})
}

// Only the newest generation counts; until it is complete, devices that it lacks are as before.
func TestGenerations(t *testing.T) {
	old, moved := gpu("gpu-0", "pcieBusID", "0000:1b:00.0"), gpu("gpu-0", "pcieBusID", "0000:43:00.0")
	stays := gpu("gpu-1", "pcieBusID", "0000:52:00.0")
	run(t, []runtime.Object{slice("a", 1, 1, old, stays)}, func(t *testing.T, r *rig) {
		r.put(t, slice("b", 2, 2, moved))
		if r.at("gpu-0") != "0000:43:00.0" || r.at("gpu-1") != "0000:52:00.0" {
			t.Errorf("one of two slices: gpu-0 at %q, gpu-1 at %q", r.at("gpu-0"), r.at("gpu-1"))
		}
		r.put(t, slice("c", 2, 2))
		if r.at("gpu-0") != "0000:43:00.0" || r.at("gpu-1") != "" {
			t.Errorf("both slices: gpu-0 at %q, gpu-1 at %q", r.at("gpu-0"), r.at("gpu-1"))
		}
		r.put(t, slice("d", 1, 1, stays))
		if r.at("gpu-1") != "" {
			t.Errorf("an older generation counts: gpu-1 at %q", r.at("gpu-1"))
		}
	})
}

// A pool whose slices were never all seen has the devices that were.
func TestIncompletePool(t *testing.T) {
	run(t, []runtime.Object{slice("a", 7, 3, gpu("gpu-0", "pcieBusID", "0000:1b:00.0"))},
		func(t *testing.T, r *rig) {
			if r.at("gpu-0") != "0000:1b:00.0" || r.at("gpu-1") != "" {
				t.Errorf("gpu-0 at %q, gpu-1 at %q", r.at("gpu-0"), r.at("gpu-1"))
			}
		})
}

// A partition is where its parent is, or where those are that share its counters, if they agree.
func TestPartitions(t *testing.T) {
	consumes := func(d resourcev1.Device, set string) resourcev1.Device {
		d.ConsumesCounters = []resourcev1.DeviceCounterConsumption{{CounterSet: set}}
		return d
	}
	run(t, []runtime.Object{slice("a", 1, 1,
		gpu("gpu-0", "uuid", "GPU-0", "pcieBusID", "0000:1b:00.0"),
		gpu("mig-0", "uuid", "MIG-0", "parentUUID", "GPU-0"),
		consumes(gpu("gpu-1", "pcieBusID", "0000:43:00.0"), "counters-1"),
		consumes(gpu("mig-1"), "counters-1"),
		consumes(gpu("gpu-2", "pcieBusID", "0000:52:00.0"), "shared"),
		consumes(gpu("gpu-3", "pcieBusID", "0000:61:00.0"), "shared"),
		consumes(gpu("mig-2"), "shared"),
	)}, func(t *testing.T, r *rig) {
		for name, want := range map[string]claim.Place{
			"mig-0": {UUID: "MIG-0", Parent: "GPU-0", PCI: "0000:1b:00.0", Root: "pci0000:15",
				Nodes: topology.NewNodeSet(0)},
			"mig-1": {PCI: "0000:43:00.0", Root: "pci0000:3d", Nodes: topology.NewNodeSet(0)},
			"mig-2": {Nodes: topology.NewNodeSet(0)},
		} {
			if got := r.Place(driver, "p", name); got != want {
				t.Errorf("%s: got %+v, want %+v", name, got, want)
			}
		}
	})
}

// All lists every device with its place, in order.
func TestAll(t *testing.T) {
	run(t, []runtime.Object{slice("a", 1, 2, gpu("b"), gpu("a", "pcieBusID", "0000:1b:00.0")),
		slice("b", 1, 2, gpu("c"))}, func(t *testing.T, r *rig) {
		var got []string
		for _, d := range r.All() {
			got = append(got, d.String()+" "+d.Place.PCI)
		}
		want := []string{"gpu.nvidia.com/p/a 0000:1b:00.0", "gpu.nvidia.com/p/b ", "gpu.nvidia.com/p/c "}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// More devices than are followed cost nothing more.
func TestBound(t *testing.T) {
	var all []*resourcev1.ResourceSlice
	const perSlice = 128
	for i := range mostDevices/perSlice + 2 {
		one := slice(fmt.Sprintf("s%04d", i), 1, 1)
		for j := range perSlice {
			one.Spec.Devices = append(one.Spec.Devices, gpu(fmt.Sprintf("d%d-%d", i, j)))
		}
		all = append(all, one)
	}
	ix := newIndex(all, &index{}, places.Default())
	if n := len(ix.pools[poolID{driver, "p"}].devices); n != mostDevices || ix.dropped != 2*perSlice {
		t.Errorf("%d devices are followed and %d not", n, ix.dropped)
	}
}

// An API server with only an older version is used all the same.
func TestOlderVersion(t *testing.T) {
	older := &v1beta1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Spec: v1beta1.ResourceSliceSpec{
			Driver: driver, NodeName: "n",
			Pool: v1beta1.ResourcePool{Name: "p", Generation: 1, ResourceSliceCount: 1},
			Devices: []v1beta1.Device{{Name: "gpu-0", Basic: &v1beta1.BasicDevice{
				Attributes: map[v1beta1.QualifiedName]v1beta1.DeviceAttribute{
					"pcieBusID": {StringValue: ptr.To("0000:1b:00.0")}}}}},
		},
	}
	serve(t, "v1beta1", []runtime.Object{older}, func(t *testing.T, r *rig) {
		if r.at("gpu-0") != "0000:1b:00.0" {
			t.Errorf("gpu-0 is at %q", r.at("gpu-0"))
		}
	})
}

// Without the API, and without a driver, an hour costs a few requests; when the API comes, it is used.
func TestNoAPI(t *testing.T) {
	serve(t, "", []runtime.Object{slice("a", 1, 1, gpu("gpu-0", "pcieBusID", "0000:1b:00.0"))},
		func(t *testing.T, r *rig) {
			r.do(func() { r.registered = true })
			r.wait(time.Hour)
			if r.requests > 3*14 { // three versions, each five minutes
				t.Errorf("%d requests in an hour", r.requests)
			}
			if r.at("gpu-0") != "" {
				t.Errorf("gpu-0 is at %q", r.at("gpu-0"))
			}
			r.do(func() { r.served = "v1" })
			r.wait(lastPause + time.Minute)
			if r.at("gpu-0") != "0000:1b:00.0" {
				t.Errorf("gpu-0 is at %q", r.at("gpu-0"))
			}
		})
}

// The node's slices are deleted once the node is registered, a driver's when it is gone. What failed
// is tried again, not at once and not seldom.
func TestRemoval(t *testing.T) {
	const all, one = "spec.nodeName=n", "spec.driver=gone,spec.nodeName=n"
	run(t, nil, func(t *testing.T, r *rig) {
		r.wait(time.Minute)
		if len(r.deletes) != 0 {
			t.Errorf("deleted before the node is registered: %q", r.deletes)
		}
		r.do(func() { r.registered = true })
		r.wait(2 * time.Minute)
		if len(r.deletes) != 1 || !strings.HasSuffix(r.deletes[0], " "+all) {
			t.Errorf("deleted at the start: %q", r.deletes)
		}
		r.do(func() { r.deletes, r.refuse = nil, errors.New("no") })
		r.Gone("gone")
		r.wait(time.Hour)
		if n := len(r.deletes); n < 14 || n > 24 {
			t.Errorf("%d tries in an hour: %q", n, r.deletes)
		}
		r.do(func() { r.deletes, r.refuse = nil, nil })
		r.wait(10 * time.Minute)
		if len(r.deletes) != 1 || !strings.HasSuffix(r.deletes[0], " "+one) && !strings.HasSuffix(
			r.deletes[0], " spec.nodeName=n,spec.driver=gone") {
			t.Errorf("deleted of the driver: %q", r.deletes)
		}
	})
}

// A driver that is back keeps its slices, also if their deletion failed before.
func TestDriverIsBack(t *testing.T) {
	run(t, nil, func(t *testing.T, r *rig) {
		r.do(func() { r.registered, r.refuse = true, errors.New("no") })
		r.Gone("gone")
		r.wait(time.Minute)
		r.do(func() { r.usable, r.refuse = []string{"gone"}, nil })
		r.wait(10 * time.Minute)
		r.do(func() { r.deletes = nil })
		r.Gone("gone")
		r.wait(10 * time.Minute)
		if len(r.deletes) != 0 {
			t.Errorf("deleted: %q", r.deletes)
		}
	})
}

// A driver that registers before the first deletion keeps its slices, however late that is.
func TestDriverIsBeforeTheNode(t *testing.T) {
	run(t, nil, func(t *testing.T, r *rig) {
		r.wait(time.Hour)
		r.do(func() { r.registered, r.usable = true, []string{"a", "b"} })
		r.wait(time.Second)
		if len(r.deletes) != 1 {
			t.Fatalf("deleted: %q", r.deletes)
		}
		for _, want := range []string{"spec.nodeName=n", "spec.driver!=a", "spec.driver!=b"} {
			if !strings.Contains(r.deletes[0], want) {
				t.Errorf("deleted: %q, without %s", r.deletes, want)
			}
		}
	})
}
