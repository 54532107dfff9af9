package allocation

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

// beside is a pod with four exclusive CPUs in its container, which uses these claims.
func beside(claims ...string) *v1.Pod {
	return podtest.New("pod", podtest.Guaranteed("main cpu=4"), podtest.Claims(claims...))
}

// use is a claim of that name with a device on each of the NUMA nodes.
func use(name string, nodes ...topology.NodeID) claim.Use {
	u := claim.Use{Pod: name, Claim: dra.Claim{Name: name + "-1", Namespace: "default", UID: "uid-" + "claim"}}
	for _, node := range nodes {
		u.Devices = append(u.Devices, claim.Device{Request: "r" + topology.NewNodeSet(node).String(),
			Driver: "gpu.example.com", Pool: "node", Name: "gpu-" + topology.NewNodeSet(node).String(),
			Place: claim.Place{Nodes: topology.NewNodeSet(node)}})
	}
	return u
}

func claimView(t *testing.T, rules topology.Rules, uses ...claim.Use) View {
	machine := topologytest.Fixture(t, "playground")
	static, err := cpumanager.NewStatic(machine, cpuset.New(0), cpumanager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return View{Machine: machine, CPUs: static, Rules: rules, Claims: PodClaims{Uses: uses}}
}

// CPUs go beside the devices of a claim, which are where they are, under each policy and scope.
func TestCPUsGoBesideClaims(t *testing.T) {
	for _, policy := range []topology.Policy{topology.BestEffort, topology.Restricted,
		topology.SingleNUMANode} {
		for _, scope := range []topology.Scope{topology.ContainerScope, topology.PodScope} {
			for node := range topology.NodeID(2) {
				v := claimView(t, topology.Rules{Policy: policy, Scope: scope}, use("gpu", node))
				plan, err := v.Plan(beside("gpu=gpu-1"), nil)
				if err != nil {
					t.Fatalf("%s, %s: %v", policy, scope, err)
				}
				main := plan.Pod.Containers["main"]
				if got := v.Machine.NodesOf(main.CPUs()); got != topology.NewNodeSet(node) {
					t.Errorf("%s, %s: CPUs %s are on %s, and the claim's device is on %d", policy, scope,
						main.CPUs(), got, node)
				}
				if claims := main.Claims(); len(claims) != 1 || claims[0].UID != "uid-claim" ||
					len(claims[0].Devices) != 1 {
					t.Errorf("%s, %s: it holds %v", policy, scope, claims)
				}
			}
		}
	}
}

// What cannot be aligned is refused before anything is prepared, with words that name the claim.
func TestClaimsThatCannotBeAligned(t *testing.T) {
	pod := beside("gpu=gpu-1", "nic=nic-1")
	uses := []claim.Use{use("gpu", 0), use("nic", 1)}
	for _, policy := range []topology.Policy{topology.Restricted, topology.SingleNUMANode} {
		_, err := claimView(t, topology.Rules{Policy: policy}, uses...).Plan(pod, nil)
		r, ok := errors.AsType[*Rejection](err)
		if !ok || r.Reason != ReasonTopology || !strings.Contains(r.Message,
			"claim gpu has devices on NUMA node 0, claim nic has devices on NUMA node 1") {
			t.Errorf("%s: %v", policy, err)
		}
	}
	plan, err := claimView(t, topology.Rules{Policy: topology.BestEffort}, uses...).Plan(pod, nil)
	if err != nil || len(plan.Pod.Containers["main"].Claims()) != 2 {
		t.Errorf("best-effort: %v, %v", plan.Pod, err)
	}
	wide := use("gpu", 0, 1)
	_, err = claimView(t, topology.Rules{Policy: topology.SingleNUMANode}, wide).Plan(
		beside("gpu=gpu-1"), nil)
	if r, ok := errors.AsType[*Rejection](err); !ok || r.Reason != ReasonTopology {
		t.Errorf("a claim of two nodes on a single one: %v", err)
	}
	v := claimView(t, topology.Rules{Policy: topology.SingleNUMANode}, wide)
	plan, err = v.Plan(beside("gpu/r1=gpu-1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if main := plan.Pod.Containers["main"]; v.Machine.NodesOf(main.CPUs()) != topology.NewNodeSet(1) ||
		len(main.Claims()[0].Devices) != 1 {
		t.Errorf("with one of its requests: %v", main)
	}
}

// Where a device is that a claim has with administrative access says nothing of the pod, nor does one
// whose place is not known or not on this machine.
func TestClaimsWithoutAPlace(t *testing.T) {
	admin, nowhere, elsewhere := use("gpu", 0, 1), use("gpu", 0), use("gpu", 63)
	for i := range admin.Devices {
		admin.Devices[i].Admin = true
	}
	nowhere.Devices[0].Place = claim.Place{}
	for name, u := range map[string]claim.Use{"admin": admin, "nowhere": nowhere, "elsewhere": elsewhere} {
		v := claimView(t, topology.Rules{Policy: topology.SingleNUMANode}, u)
		if _, err := v.Plan(beside("gpu=gpu-1"), nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A pod whose claims cannot be used yet is not ready. What waits for it is planned with what is known.
func TestClaimsLack(t *testing.T) {
	v := claimView(t, topology.Rules{Policy: topology.SingleNUMANode})
	v.Claims.Lack = claim.Lack{Reason: claim.ReasonWaitClaim, Why: "claim gpu is not allocated"}
	pod := beside("gpu=gpu-1")
	_, err := v.Plan(pod, nil)
	if u, ok := errors.AsType[*Unready](err); !ok || u.Claim != v.Claims.Lack ||
		err.Error() != "claim gpu is not allocated" {
		t.Errorf("it is placed with %v", err)
	}
	unused := pod.DeepCopy()
	unused.Spec.Containers[0].Resources.Claims = nil
	if _, err := v.Plan(unused, nil); err == nil {
		t.Error("a claim that no container uses is not waited for")
	}
	v.Claims.Lack = claim.Lack{}
	plan, err := v.Plan(pod, nil)
	if err != nil || plan.Pod.Containers["main"].Claims()[0].UID != "" {
		t.Errorf("planned ahead: %v, %v", plan.Pod, err)
	}
	v.Own, v.Keep = plan.Pod, KeepParts
	v.Claims.Uses = []claim.Use{use("gpu", 1)}
	plan, err = v.Plan(pod, nil)
	if err != nil || plan.Pod.Containers["main"].Claims()[0].UID != "uid-claim" {
		t.Errorf("once it is known: %v, %v", plan.Pod, err)
	}
	v.Own = plan.Pod
	v.Claims.Uses[0].Devices = nil
	kept, err := v.Plan(pod, nil)
	if diff := cmp.Diff(plan.Pod.Containers["main"].Claims(), kept.Pod.Containers["main"].Claims(),
		cmp.Comparer(func(a, b topology.NodeSet) bool { return a == b })); err != nil || diff != "" {
		t.Errorf("the same claim is not kept as it was: %v\n%s", err, diff)
	}
}

// The claim for extended resources has no name.
func TestClaimForExtendedResources(t *testing.T) {
	const gpu = "example.com/gpu"
	pod := podtest.New("pod", podtest.Guaranteed("main cpu=4 gpu=1"))
	pod.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{
		ResourceClaimName: "claim", RequestMappings: []v1.ContainerExtendedResourceRequest{
			{ContainerName: "main", ResourceName: gpu, RequestName: "r1"}},
	}
	u := use("", 0, 1)
	v := claimView(t, topology.Rules{Policy: topology.SingleNUMANode}, u)
	if !v.Needs(pod) {
		t.Error("nothing is assigned to the pod")
	}
	plan, err := v.Plan(pod, nil)
	if err != nil {
		t.Fatal(err)
	}
	main := plan.Pod.Containers["main"]
	if v.Machine.NodesOf(main.CPUs()) != topology.NewNodeSet(1) || len(main.Devices()) != 0 {
		t.Errorf("it gets %v", main)
	}
	if lacks := v.Lacks(pod); !slices.ContainsFunc(lacks, func(text string) bool {
		return strings.Contains(text, "the claim for extended resources of container main")
	}) {
		t.Errorf("without it the pod lacks %q", lacks)
	}
}

// Claims are written and read without a loss.
func TestClaimsAreWritten(t *testing.T) {
	want := Claims{{Name: "gpu", Request: "r", UID: "u", Devices: []claim.Device{
		{Request: "r/sub", Driver: "d", Pool: "p", Name: "n", ShareID: "s", Admin: true, Place: claim.Place{
			Nodes: topology.NewNodeSet(0, 70), PCI: "0000:01:00.0", Root: "pci0000:00", UUID: "GPU-1", Parent: "GPU-0"}},
		{Driver: "d", Pool: "p", Name: "o"}}}, {}}
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
	for _, wrong := range []string{`{}`, `[{"devices":[{"nodes":"x"}]}]`} {
		if _, err := decodeClaims([]byte(wrong)); err == nil {
			t.Errorf("%s is read", wrong)
		}
	}
}
