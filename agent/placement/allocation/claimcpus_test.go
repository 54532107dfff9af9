package allocation

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
)

// cpuClaim is a claim named "gpu" with a device of a driver of CPUs.
func cpuClaim(at claim.Place) claim.Use {
	u := use("gpu", 1)
	u.Devices[0].Driver, u.Devices[0].Name, u.Devices[0].Place = "dra.cpu", "cpudev", at
	return u
}

// TestCPUsOfDrivers: a driver may hand out what it was lent and nobody has. A container with such a
// claim gets no CPUs by its requests.
func TestCPUsOfDrivers(t *testing.T) {
	group := claim.Place{Nodes: topology.NewNodeSet(1), Has: claim.Amount{CPUs: 4}}
	wide := group
	wide.Has.CPUs = 8
	ids := func(text string) claim.Place {
		return claim.Place{Nodes: topology.NewNodeSet(1), CPUs: text, Has: claim.Amount{CPUs: 1}}
	}
	for name, c := range map[string]struct {
		at   claim.Place
		held cpuset.CPUSet
		want string
	}{
		"its own":            {at: ids("12-13")},
		"a group":            {at: group},
		"another's":          {ids("12"), cpuset.New(12), "CPUs 12, which pod ns/other has exclusively"},
		"one of the group's": {group, cpuset.New(13), "CPUs 13, which pod ns/other has exclusively"},
		"not lent":           {ids("8,12"), cpuset.New(9), "CPUs 8, which --dra-cpus does not give"},
		"more than lent": {wide, cpuset.New(),
			`8 CPUs, and --dra-cpus gives drivers of resource claims 4 there ("12-15")`},
	} {
		t.Run(name, func(t *testing.T) {
			v := claimView(t, topology.Rules{Policy: topology.SingleNUMANode}, cpuClaim(c.at))
			var err error
			if v.CPUs, err = v.CPUs.Lending(cpuset.New(12, 13, 14, 15)); err != nil {
				t.Fatal(err)
			}
			v.Taken = v.Taken.With(CPUs(c.held))
			v.Holder = func(cpuset.CPUSet) string { return "ns/other" }
			plan, err := v.Plan(beside("gpu=gpu-1"), nil)
			r, refused := errors.AsType[*Rejection](err)
			switch main := plan.Pod.Containers["main"]; {
			case c.want == "" && (err != nil || !main.CPUs().IsEmpty() || len(main.Claims()) != 1):
				t.Errorf("%v: %v", main, err)
			case c.want != "" && (!refused || r.Reason != ReasonClaimCPUs ||
				!strings.Contains(r.Message, "claim gpu has the device cpudev of driver dra.cpu, "+
					"which hands out "+c.want)):
				t.Errorf("%v", err)
			}
		})
	}
}

func TestHolderOf(t *testing.T) {
	own := Holdings{}.With(CPUs(cpuset.New(1, 2)))
	l := Ledger{}.With("a", Entry{Assigned: own}).With("a", Entry{Name: "ns/a", Assigned: own})
	l = l.With("b", Entry{Name: "ns/b", Assigned: Holdings{}.With(CPUs(cpuset.New(3)))})
	if a, none := l.HolderOf(cpuset.New(2, 4)), l.HolderOf(cpuset.New(4)); a != "ns/a" || none != "" {
		t.Errorf("%q, %q", a, none)
	}
}

// TestMemoryOfClaims: memory that a driver has handed out on a node is not given again there.
func TestMemoryOfClaims(t *testing.T) {
	const gi = 1 << 30
	at := claim.Place{Nodes: topology.NewNodeSet(1), Has: claim.Amount{Bytes: 100 * gi}}
	u := use("gpu", 1)
	u.Devices[0].Place, u.Devices[0].Consumed = at, claim.Amount{Bytes: 2 * gi}
	v := claimView(t, topology.Rules{Policy: topology.SingleNUMANode}, u)
	reserved := memory.Amounts{0: {v1.ResourceMemory: gi}}
	var err error
	if v.Memory, err = memory.New(v.Machine, reserved); err != nil {
		t.Fatal(err)
	}
	has := int64(v.Memory.Allocatable()[1][v1.ResourceMemory]) / gi
	for extra, want := range map[int64]bool{2: true, 1: false} {
		pod := podtest.New("pod", podtest.Containers(fmt.Sprintf("main cpu=4 memory=%dGi", has-extra)),
			podtest.Claims("gpu=gpu-1"))
		if _, err := v.Plan(pod, nil); (err == nil) != want {
			t.Errorf("%d GiB of %d beside a claim with 2: %v", has-extra, has, err)
		}
	}
	one := Container{}.With(Claims{{UID: "u", Devices: u.Devices}})
	pods := []Pod{{UID: "a", Containers: map[string]Container{"x": one, "y": one}}}
	pods = append(pods, pods[0])
	want := []memory.Block{{Nodes: topology.NewNodeSet(1), Resource: v1.ResourceMemory, Size: 2 * gi}}
	if diff := cmp.Diff(want, HoldingsOf(pods...).Memory(), cmp.Comparer(func(a, b topology.NodeSet) bool {
		return a == b
	})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestAmountsAreWritten: what a claim gives is the same after a restart.
func TestAmountsAreWritten(t *testing.T) {
	want := Claims{{Name: "c", UID: "u", Devices: []claim.Device{{Driver: "d", Pool: "p", Name: "n",
		Consumed: claim.Amount{Pages: 2}, Place: claim.Place{PageBytes: 2 << 20,
			Has: claim.Amount{Pages: 5}}}, {Driver: "d", Pool: "p", Name: "o",
		Place: claim.Place{CPUs: "0-3", Has: claim.Amount{CPUs: 4}}}}}}
	raw, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeClaims(raw)
	if diff := cmp.Diff(Holding(want), got, cmp.Comparer(func(a, b topology.NodeSet) bool {
		return a == b
	})); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	of, bytes := want[0].Devices[0].Memory()
	if cpus, unknown := want.CPUs(); cpus.String() != "0-3" || unknown || of != "hugepages-2Mi" ||
		bytes != 4<<20 {
		t.Errorf("CPUs %s, %v; %d bytes of %s", cpus, unknown, bytes, of)
	}
}
