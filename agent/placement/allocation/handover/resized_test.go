package handover

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/allocationtest"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// What a pod was given since its containers were annotated is kept: by the state, and if that is lost, by the
// kubelet's files. A kubelet that takes over hears what containers started with.
func TestRebuildResized(t *testing.T) {
	machine, static, reserving := playground(t)
	a := allocationtest.Pod("a")
	a.Containers["main"].Devices()[0].Answer = []byte{0x0a, 0} // one empty environment variable
	runs := running(t, a)
	grown := of("boot-1", a)
	grown.Containers["main"] = a.Containers["main"].With(allocation.CPUs(cpuset.New(2, 3, 18, 19, 4, 20))).
		WithAdded(cpuset.New(4), cpuset.New(20))
	grown.Containers["init"] = a.Containers["init"].With(allocation.Memory{
		{Nodes: topology.NewNodeSet(0, 1), Resource: "memory", Size: 6 << 30}})
	grown.Resources = &podspec.Resources{}
	state := allocationtest.State(grown)
	got, err := Rebuild(state, []cri.Pod{runs}, "boot-1", nil)
	if err != nil || len(got) > 0 {
		t.Errorf("the state is changed: %+v, %v", got, err)
	}

	dir := t.TempDir()
	if err := Export(dir, dir, state, Node{CPUs: static, Memory: reserving}); err != nil {
		t.Fatal(err)
	}
	kubelet, err := ReadKubelet(dir, dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if got := kubelet.CPUs.Baselines["a"]["main"]; !got.Equals(cpuset.New(2, 3, 18, 19)) {
		t.Errorf("it started with %s", got)
	}
	account := kubelet.On(Node{Online: machine.Online(), Nodes: machine.NodeSet(), CPUs: static, Memory: reserving})
	got, err = Rebuild(allocation.State{}, []cri.Pod{runs}, "boot-1", account, account)
	if err != nil {
		t.Fatal(err)
	}
	want := of("boot-1", grown)
	want.Resources = nil // the file of allocated pods has these
	want.Containers["main"] = want.Containers["main"].WithAdded(cpuset.New(4, 20))
	if diff := cmp.Diff([]allocation.Change{{Put: want}}, got, allocationtest.Same); diff != "" {
		t.Errorf("rebuilt (-want +got):\n%s", diff)
	}

	shrunk := of("boot-1", a)
	shrunk.Containers["main"] = a.Containers["main"].With(allocation.CPUs(cpuset.New(2, 18)))
	if err := Export(dir, dir, allocationtest.State(shrunk), Node{CPUs: static, Memory: reserving}); err != nil {
		t.Fatal(err)
	}
	if kubelet, err = ReadKubelet(dir, dir, time.Now()); err != nil || kubelet.CPUs.Baselines != nil {
		t.Errorf("it has what it started with: %+v, %v", kubelet.CPUs.Baselines, err)
	}
	account = kubelet.On(Node{Online: machine.Online(), Nodes: machine.NodeSet(), CPUs: static, Memory: reserving})
	got, err = Rebuild(allocation.State{}, []cri.Pod{runs}, "boot-1", account, account)
	if diff := cmp.Diff([]allocation.Change{{Put: shrunk}}, got, allocationtest.Same); diff != "" || err != nil {
		t.Errorf("rebuilt, %v (-want +got):\n%s", err, diff)
	}
}
