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
	of := func(list v1.ResourceList) v1.ResourceRequirements {
		return v1.ResourceRequirements{Limits: list, Requests: list}
	}
	want := &v1.Pod{Spec: v1.PodSpec{
		RestartPolicy: v1.RestartPolicyNever,
		InitContainers: []v1.Container{{Name: "first"},
			{Name: "side", RestartPolicy: ptr.To(v1.ContainerRestartPolicyAlways)}},
		Containers: []v1.Container{{Name: "web"}, {Name: "db", Resources: of(v1.ResourceList{
			"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi"),
			"hugepages-2Mi": resource.MustParse("4Mi"), "example.com/gpu": resource.MustParse("1"),
		})}},
	}}
	want.Namespace, want.Name, want.UID = "shop", "p", "u"
	want.Annotations = map[string]string{"k": "v"}
	want.Status.Phase = v1.PodRunning
	got := New("p", In("shop"), UID("u"), Phase(v1.PodRunning), Annotations("k", "v"),
		Line("Never first side~ | web"), Guaranteed("db cpu=2 hugepages-2Mi=4Mi gpu=1"))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(New("p", Line("Never first side~ | web")), New("p", Containers("first!", "side~", "web"),
		func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever })); diff != "" {
		t.Errorf("-line +containers:\n%s", diff)
	}
}
