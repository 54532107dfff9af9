package claim

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/internal/podtest"
)

// claimant has a claim by name, one by template, one for which none was made, and one for extended
// resources.
func claimant() *v1.Pod {
	pod := podtest.New("ns/p", podtest.UID("uid-p"),
		podtest.Containers("init!", "main", "gpu gpu=2"))
	pod.Spec.ResourceClaims = []v1.PodResourceClaim{
		{Name: "named", ResourceClaimName: ptr.To("c-named")},
		{Name: "made", ResourceClaimTemplateName: ptr.To("t")},
		{Name: "none", ResourceClaimTemplateName: ptr.To("t")},
	}
	pod.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{
		{Name: "none"}, {Name: "made", ResourceClaimName: ptr.To("p-made-x")},
	}
	pod.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{
		ResourceClaimName: "p-extended", RequestMappings: []v1.ContainerExtendedResourceRequest{
			{ContainerName: "gpu", ResourceName: "example.com/gpu", RequestName: "r0"},
			{ContainerName: "gpu", ResourceName: "example.com/gpu", RequestName: "r1"},
			{ContainerName: "gpu", ResourceName: "example.com/nic", RequestName: "r2"},
			{ContainerName: "main", ResourceName: "example.com/gpu", RequestName: "r3"},
		}}
	asks := func(c *v1.Container, claims ...v1.ResourceClaim) { c.Resources.Claims = claims }
	asks(&pod.Spec.InitContainers[0], v1.ResourceClaim{Name: "named"})
	asks(&pod.Spec.Containers[0], v1.ResourceClaim{Name: "made", Request: "a"},
		v1.ResourceClaim{Name: "named", Request: "b"}, v1.ResourceClaim{Name: "made", Request: "c"},
		v1.ResourceClaim{Name: "none"})
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{
		EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug",
			Resources: v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: "made"}}}}}}
	return pod
}

func TestRefs(t *testing.T) {
	pod := claimant()
	got, err := Refs(pod)
	want := []Ref{{"named", "c-named", false}, {"made", "p-made-x", true}, {"", "p-extended", false}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
	if !Any(pod) || Any(podtest.New("")) {
		t.Error("the wrong pod has claims")
	}
	pod.Status.ResourceClaimStatuses = nil
	if _, err = Refs(pod); !errors.Is(err, ErrNotCreated) ||
		err.Error() != `pod "ns/p": ResourceClaim not created yet` {
		t.Errorf("without the status: %v", err)
	}
	pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "odd"}}
	if _, err = Refs(pod); err == nil || err.Error() !=
		`pod "ns/p", spec.resourceClaim "odd": none of the supported fields are set` {
		t.Errorf("an entry without a source: %v", err)
	}
}

// Containers of all kinds get the parts that they name, and of extended resources what is mapped to
// them and what they ask for.
func TestParts(t *testing.T) {
	pod := claimant()
	for container, want := range map[string]string{
		"init": "c-named/", "main": "c-named/b p-made-x/a p-made-x/c", "debug": "p-made-x/",
		"gpu": "p-extended/r0 p-extended/r1", "nobody": "",
	} {
		parts, err := Parts(pod, container)
		var got []string
		for _, p := range parts {
			got = append(got, p.Name+"/"+p.Request)
		}
		if text := strings.Join(got, " "); text != want || err != nil {
			t.Errorf("%s gets %q, %v, want %q", container, text, err, want)
		}
	}
	pod.Status.ResourceClaimStatuses = nil
	if _, err := Parts(pod, "init"); err != nil {
		t.Errorf("a container that does not use the missing claim: %v", err)
	}
	if _, err := Parts(pod, "main"); !errors.Is(err, ErrNotCreated) {
		t.Errorf("a container that uses the missing claim: %v", err)
	}
	for text, want := range map[string]bool{
		"": true, "a": true, "a b": true, "b": false,
	} {
		if got := (Part{Request: "a"}).Gets(strings.Fields(text)); got != want {
			t.Errorf("a device for %q is in request a: %t", text, got)
		}
	}
	if !(Part{}).Gets([]string{"b"}) {
		t.Error("the whole claim leaves out a device")
	}
}

// allocated is a claim of the pod with three devices of two drivers.
func allocated() *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p-made-x", UID: "uid-c",
			OwnerReferences: []metav1.OwnerReference{{Kind: "Pod", Name: "p", UID: "uid-p",
				Controller: ptr.To(true)}}},
		Status: resourcev1.ResourceClaimStatus{
			ReservedFor: []resourcev1.ResourceClaimConsumerReference{
				{Resource: "pods", Name: "q", UID: "uid-q"}, {Resource: "pods", Name: "p", UID: "uid-p"}},
			Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
				Results: []resourcev1.DeviceRequestAllocationResult{
					{Request: "a/small", Driver: "z.example.com", Pool: "n", Device: "d0"},
					{Request: "b", Driver: "a.example.com", Pool: "n", Device: "d1",
						ShareID: ptr.To(types.UID("s1")), AdminAccess: ptr.To(false),
						ConsumedCapacity: map[resourcev1.QualifiedName]resource.Quantity{
							"dra.cpu/cpu": resource.MustParse("4"), "memory": resource.MustParse("1")}},
					{Request: "c", Driver: "z.example.com", Pool: "n", Device: "d2",
						AdminAccess: ptr.To(true)},
				}}},
		},
	}
}

func TestCheck(t *testing.T) {
	pod := claimant()
	for want, change := range map[string]func(*resourcev1.ResourceClaim){
		"": func(*resourcev1.ResourceClaim) {},
		"ResourceClaim other/p-made-x is not in the same namespace as Pod ns/p": func(
			c *resourcev1.ResourceClaim) {
			c.Namespace = "other"
		},
		"ResourceClaim ns/p-made-x was not created for Pod ns/p (Pod is not owner)": func(
			c *resourcev1.ResourceClaim) {
			c.OwnerReferences[0].UID = "another"
		},
		"pod p (uid-p) is not allowed to use ResourceClaim p-made-x (uid-c)": func(
			c *resourcev1.ResourceClaim) {
			c.Status.ReservedFor = c.Status.ReservedFor[:1]
		},
		"ResourceClaim p-made-x: not allocated": func(c *resourcev1.ResourceClaim) {
			c.Status.Allocation = nil
		},
	} {
		c := allocated()
		change(c)
		err := Check(pod, Ref{"made", "p-made-x", true}, c, false)
		if got := fmt.Sprint(err); got != want && (err != nil || want != "") {
			t.Errorf("%s, want %q", got, want)
		}
	}
	c := allocated()
	c.OwnerReferences = nil
	if err := Check(pod, Ref{"named", "p-made-x", false}, c, false); err != nil {
		t.Errorf("a claim by name needs no owner: %v", err)
	}
}

// With the gate a pod may use a claim that its PodGroup owns and has reserved, and no other group's.
func TestCheckOfGroups(t *testing.T) {
	for _, tt := range []struct {
		gate       bool
		group, in  string
		wantRefuse string
	}{
		{true, "g", "g", ""},
		{false, "g", "g", "was not created for Pod ns/p (Pod is not owner); it is for the PodGroup that the pod is " +
			"in: turn on the feature gate DRAWorkloadResourceClaims on this node"},
		{false, "g", "other", "was not created for Pod ns/p (Pod is not owner)"},
		{true, "g", "other", "(neither Pod nor PodGroup other is the owner)"},
		{true, "g", "", "was not created for Pod ns/p (Pod is not owner)"},
	} {
		pod, c := claimant(), allocated()
		if tt.in != "" {
			pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &tt.in}
		}
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "scheduling.k8s.io/v1beta1",
			Kind: "PodGroup", Name: tt.group, UID: "uid-g", Controller: ptr.To(true)}}
		c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{
			APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: tt.group, UID: "uid-g"}}
		err := Check(pod, Ref{"made", "p-made-x", true}, c, tt.gate)
		if got := fmt.Sprint(err); tt.wantRefuse != "" && !strings.HasSuffix(got, tt.wantRefuse) ||
			(err == nil) != (tt.wantRefuse == "") {
			t.Errorf("%+v: %v", tt, err)
		}
		named := Check(pod, Ref{"named", "p-made-x", false}, c, tt.gate)
		if may := tt.gate && tt.in == tt.group; (named == nil) != may {
			t.Errorf("%+v, by name: %v", tt, named)
		}
	}
}

// A claim whose allocation is for another node is refused with words; one for any node is not, nor while
// the node is not known.
func TestOn(t *testing.T) {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"zone": "a"}}}
	byName := func(name string) *v1.NodeSelector {
		return &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchFields: []v1.NodeSelectorRequirement{
			{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{name}}}}}}
	}
	inZones := func(zones ...string) *v1.NodeSelector {
		return &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
			{Key: "zone", Operator: v1.NodeSelectorOpIn, Values: zones}, {Key: "gpu", Operator: v1.NodeSelectorOpDoesNotExist}}}}}
	}
	for want, tc := range map[string]struct {
		node  *v1.Node
		where *v1.NodeSelector
	}{
		"":                                 {node, nil},
		"<unknown>":                        {nil, byName("n2")},
		"<its name>":                       {node, byName("n1")},
		"<its zone>":                       {node, inZones("b", "a")},
		"metadata.name In n2":              {node, byName("n2")},
		"zone In b,c and gpu DoesNotExist": {node, inZones("b", "c")},
	} {
		c := allocated()
		c.Status.Allocation.NodeSelector = tc.where
		text := ""
		if want != "" && want[0] != '<' {
			text = "ResourceClaim p-made-x is allocated for another node, where " + want +
				", and not for n1: leave the choice of the pod's node to the scheduler"
		}
		if err := On(tc.node, c); (err == nil) != (text == "") || err != nil && err.Error() != text {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestUseOf(t *testing.T) {
	got := UseOf(Ref{"made", "p-made-x", true}, allocated())
	want := Use{Pod: "made", Claim: dra.Claim{Namespace: "ns", Name: "p-made-x", UID: "uid-c"},
		Devices: []Device{
			{Request: "a/small", Driver: "z.example.com", Pool: "n", Name: "d0"},
			{Request: "b", Driver: "a.example.com", Pool: "n", Name: "d1", ShareID: "s1",
				Consumed: Amount{CPUs: 4}},
			{Request: "c", Driver: "z.example.com", Pool: "n", Name: "d2", Admin: true},
		}}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b Place) bool {
		return a.PCI == b.PCI
	})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a.example.com", "z.example.com"}, got.Drivers()); diff != "" {
		t.Errorf("drivers: -want +got:\n%s", diff)
	}
	empty := allocated()
	empty.Status.Allocation = nil
	if got := UseOf(Ref{}, empty); len(got.Devices) != 0 || got.Drivers() != nil {
		t.Errorf("without an allocation: %+v", got)
	}
}
