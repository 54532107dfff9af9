package podtest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// The texts mean the pod that is written out here.
func TestNew(t *testing.T) {
	list := v1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi"),
		"hugepages-2Mi": resource.MustParse("4Mi"), "example.com/gpu": resource.MustParse("1")}
	want := &v1.Pod{Spec: v1.PodSpec{
		RestartPolicy: v1.RestartPolicyNever, NodeName: "node", Priority: ptr.To(int32(7)),
		Resources: &v1.ResourceRequirements{
			Requests: v1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("2Gi")},
			Limits: v1.ResourceList{"cpu": resource.MustParse("2"),
				"example.com/nic": resource.MustParse("3")},
		},
		ResourceClaims: []v1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("gpu-1")},
			{Name: "nic", ResourceClaimName: ptr.To("nic-1")}},
		InitContainers: []v1.Container{{Name: "first"},
			{Name: "side", RestartPolicy: ptr.To(v1.ContainerRestartPolicyAlways)}},
		Containers: []v1.Container{
			{Name: "web", Resources: v1.ResourceRequirements{Claims: []v1.ResourceClaim{
				{Name: "gpu"}, {Name: "nic", Request: "one"}}}},
			{Name: "db", Resources: v1.ResourceRequirements{Limits: list, Requests: list}}},
		EphemeralContainers: []v1.EphemeralContainer{{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}},
	}}
	want.Namespace, want.Name, want.UID = "shop", "p", "u"
	want.Annotations = map[string]string{"k": "v", "kubernetes.io/config.source": "file"}
	want.Status.Phase = v1.PodRunning
	got := New("shop/p", UID("u"), Phase(v1.PodRunning), Annotations("k", "v"), Source("file"),
		Spec(v1.PodSpec{NodeName: "node"}), Priority(7), Line("Never first side~ | web debug?"),
		Claims("gpu=gpu-1", "nic/one=nic-1"), Guaranteed("db cpu=2 hugepages-2Mi=4Mi gpu=1"),
		Resources("memory=5Gi cpu=1..2 memory=2Gi.. nic=..3"))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if p := New("p"); p.Namespace != "default" || p.Name != "p" || p.UID != "p" {
		t.Errorf("a bare name makes %s/%s with UID %s", p.Namespace, p.Name, p.UID)
	}
	if diff := cmp.Diff(New("p", Line("Never first side~ | web")), New("p", Containers("first!", "side~", "web"),
		func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever })); diff != "" {
		t.Errorf("-line +containers:\n%s", diff)
	}
}
