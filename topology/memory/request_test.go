package memory_test

import (
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/memory"
)

// container has these limits and equal requests.
func container(limits ...string) v1.Container {
	l := list(limits...)
	return v1.Container{Resources: v1.ResourceRequirements{Limits: l, Requests: l.DeepCopy()}}
}

func sidecar(limits ...string) v1.Container {
	c := container(limits...)
	always := v1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}

func TestRequests(t *testing.T) {
	burstable := container("cpu=1", "memory=1Gi")
	burstable.Resources.Requests = list("cpu=1", "memory=512Mi")
	of := func(containers ...v1.Container) *v1.Pod {
		return &v1.Pod{Spec: v1.PodSpec{Containers: containers}}
	}
	podLevel := of(container("cpu=1", "memory=1Gi"))
	podLevel.Spec.Resources = &v1.ResourceRequirements{
		Limits: list("cpu=1", "memory=1Gi"), Requests: list("cpu=1", "memory=1Gi"),
	}
	for _, test := range []struct {
		name string
		pod  *v1.Pod
		want wants
	}{
		{"guaranteed", of(container("cpu=100m", "memory=1Gi")), want(1)},
		{"huge pages", of(container("cpu=1", "memory=1Gi", "hugepages-2Mi=1Gi", "x.io/y=1")),
			wants{v1.ResourceMemory: gib, pages: gib}},
		{"no pages", of(container("cpu=1", "memory=1Gi", "hugepages-2Mi=0")), want(1)},
		{"burstable", of(burstable), nil},
		{"beside one without limits", of(container("cpu=1", "memory=1Gi"), container()), nil},
		{"pod level", podLevel, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := memory.Requests(test.pod, &test.pod.Spec.Containers[0])
			if diff := gocmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestPodRequests(t *testing.T) {
	small, large := container("cpu=1", "memory=1Gi"), container("cpu=1", "memory=4Gi")
	paged := container("cpu=1", "memory=1Gi", "hugepages-2Mi=1Gi")
	for _, test := range []struct {
		name        string
		inits, apps []v1.Container
		want        wants
	}{
		{"sum", nil, []v1.Container{small, large}, want(5)},
		{"a large init container", []v1.Container{large}, []v1.Container{small}, want(4)},
		{"sidecars count with the containers", []v1.Container{sidecar("cpu=1", "memory=2Gi")},
			[]v1.Container{small, small}, want(4)},
		{"and with later init containers", []v1.Container{sidecar("cpu=1", "memory=2Gi"), large},
			[]v1.Container{small}, want(6)},
		{"but not with earlier ones", []v1.Container{large, sidecar("cpu=1", "memory=2Gi")},
			[]v1.Container{small}, want(4)},
		{"pages of init containers only", []v1.Container{paged}, []v1.Container{small},
			wants{v1.ResourceMemory: gib, pages: gib}},
		{"not guaranteed", nil, []v1.Container{container("memory=1Gi")}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := &v1.Pod{Spec: v1.PodSpec{InitContainers: test.inits, Containers: test.apps}}
			if diff := gocmp.Diff(test.want, memory.PodRequests(pod)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
