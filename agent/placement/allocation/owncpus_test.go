package allocation

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
)

// ownClaim is a claim named "cpus" with n CPUs of each node by the agent's own driver.
func ownClaim(uid types.UID, n int, nodes ...topology.NodeID) claim.Use {
	u := claim.Use{Pod: "cpus", Claim: dra.Claim{Name: string(uid), Namespace: "default", UID: uid}}
	for i, node := range nodes {
		u.Devices = append(u.Devices, claim.Device{Request: fmt.Sprint("r", i), Driver: claim.CPUDriver,
			Pool: "node", Name: claim.CPUDevice(node), ShareID: fmt.Sprint(uid, i),
			Consumed: claim.Amount{CPUs: int64(n)}, Place: claim.Place{Nodes: topology.NewNodeSet(node)}})
	}
	return u
}

// TestCPUsByClaim: a container has the CPUs of its claim on their nodes, under each policy, whatever
// it requests; they are exclusive.
func TestCPUsByClaim(t *testing.T) {
	for _, policy := range []topology.Policy{topology.None, topology.BestEffort, topology.SingleNUMANode} {
		for node := range topology.NodeID(2) {
			v := claimView(t, topology.Rules{Policy: policy}, ownClaim("u", 3, node))
			v.CPUDriver = claim.CPUDriver
			pod := beside("cpus=cpus-1") // which requests four
			plan, err := v.Plan(pod, nil)
			if err != nil {
				t.Fatalf("%s: %v", policy, err)
			}
			cpus := plan.Pod.Containers["main"].CPUs()
			if cpus.Size() != 3 || v.Machine.NodesOf(cpus) != topology.NewNodeSet(node) {
				t.Errorf("%s: CPUs %s, want 3 of node %d", policy, cpus, node)
			}
			v.Own, v.Keep = plan.Pod, KeepParts
			if again, err := v.Plan(pod, nil); err != nil || !again.Pod.Containers["main"].CPUs().Equals(cpus) {
				t.Errorf("%s: not kept: %v, %v", policy, again.Pod, err)
			}
			v.Claims.Uses = []claim.Use{ownClaim("u", 3, 1-node)}
			if again, err := v.Plan(pod, nil); err != nil ||
				v.Machine.NodesOf(again.Pod.Containers["main"].CPUs()) != topology.NewNodeSet(1-node) {
				t.Errorf("%s: another node: %v, %v", policy, again.Pod, err)
			}
		}
	}
	v := claimView(t, topology.Rules{}, ownClaim("u", 2, 0, 1))
	v.CPUDriver = claim.CPUDriver
	plan, err := v.Plan(beside("cpus=cpus-1"), nil)
	if cpus := plan.Pod.Containers["main"].CPUs(); err != nil || cpus.Size() != 4 ||
		cpus.Intersection(v.Machine.CPUsOfNode(1)).Size() != 2 {
		t.Errorf("of two nodes: %s, %v", cpus, err)
	}
}

// TestCPUsByClaimRefused: a claim with CPUs serves one container, and its CPUs must be free.
func TestCPUsByClaimRefused(t *testing.T) {
	for want, change := range map[string]func(*View, *v1.Pod){
		"and container second uses it too": func(_ *View, pod *v1.Pod) {
			pod.Spec.Containers = append(pod.Spec.Containers, *pod.Spec.Containers[0].DeepCopy())
			pod.Spec.Containers[1].Name = "second"
		},
		"and pod ns/other uses it too": func(v *View, _ *v1.Pod) {
			v.ClaimHolder = func(types.UID) string { return "ns/other" }
		},
		"claim cpus has 3 CPUs of NUMA node 1: not enough cpus available": func(v *View, _ *v1.Pod) {
			v.Taken = v.Taken.With(CPUs(v.Machine.CPUsOfNode(1)))
		},
	} {
		v, pod := claimView(t, topology.Rules{}, ownClaim("u", 3, 1)), beside("cpus=cpus-1")
		v.CPUDriver = claim.CPUDriver
		change(&v, pod)
		_, err := v.Plan(pod, nil)
		if r, ok := errors.AsType[*Rejection](err); !ok || r.Reason != ReasonClaimCPUs ||
			!strings.Contains(r.Message, want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestClaimHolder(t *testing.T) {
	held := HoldingsOf(Pod{UID: "a", Containers: map[string]Container{
		"c": Container{}.With(Claims{{UID: "u"}})}})
	l := Ledger{}.With("a", Entry{Name: "ns/a", Assigned: held, Hold: Terminating})
	if now, later := l.ClaimHolder("u", false), l.ClaimHolder("u", true); now != "ns/a" || later != "" {
		t.Errorf("%q, %q", now, later)
	}
}

// TestBothWaysFromOnePool: over a walk of pods that come and go, asking by requests and by claims as a
// scheduler allocates them, no CPU has two owners, and no pod is refused that there is room for.
func TestBothWaysFromOnePool(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	v := claimView(t, topology.Rules{Policy: topology.SingleNUMANode})
	v.CPUDriver = claim.CPUDriver
	state, placed, refused := State{}, [2]int{}, 0
	for step := range 6_000 {
		if pods := state.List(); len(pods) > 0 && r.IntN(5) < 2 {
			state = state.With([]Change{{Drop: pods[r.IntN(len(pods))].UID}})
			continue
		}
		uid, n, node := types.UID(fmt.Sprint(step)), 1+r.IntN(4), topology.NodeID(r.IntN(2))
		byClaim := r.IntN(2)
		pod := podtest.New(string(uid), podtest.Guaranteed(fmt.Sprint("main cpu=", n)))
		on := v.CPUs.Free(state.CPUs())
		v.Claims = PodClaims{}
		if byClaim == 1 {
			pod = podtest.New(string(uid), podtest.Guaranteed("main cpu=4"), podtest.Claims("cpus=cpus-1"))
			v.Claims.Uses = []claim.Use{ownClaim(uid, n, node)}
			on = on.Intersection(v.Machine.CPUsOfNode(node))
		} else {
			most := cpuset.New()
			for _, at := range v.Machine.NodeSet().IDs() {
				if part := on.Intersection(v.Machine.CPUsOfNode(at)); part.Size() > most.Size() {
					most = part
				}
			}
			on = most
		}
		v.Taken = HoldingsOf(state.List()...)
		plan, err := v.Plan(pod, nil)
		if (err == nil) != (on.Size() >= n) {
			t.Fatalf("step %d: %d CPUs of %s: %v", step, n, on, err)
		}
		if err != nil {
			refused++
			continue
		}
		cpus := plan.Pod.Containers["main"].CPUs()
		if both := cpus.Intersection(state.CPUs()); cpus.Size() != n || !both.IsEmpty() ||
			byClaim == 1 && !cpus.IsSubsetOf(v.Machine.CPUsOfNode(node)) {
			t.Fatalf("step %d: got %s, of which %s are another's", step, cpus, both)
		}
		placed[byClaim]++
		state = state.With([]Change{{Put: plan.Pod}})
		if byClaim == 1 && !state.ByRequests(claim.CPUDriver).Intersection(cpus).IsEmpty() {
			t.Fatalf("step %d: %s counts as requested", step, cpus)
		}
	}
	if placed[0] < 500 || placed[1] < 500 || refused < 100 {
		t.Errorf("placed %v, refused %d: the walk shows too little", placed, refused)
	}
}
