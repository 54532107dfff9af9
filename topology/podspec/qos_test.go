package podspec

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/internal/podtest"
)

var list = podtest.Amounts

func container(requests, limits v1.ResourceList) v1.Container {
	return v1.Container{Resources: v1.ResourceRequirements{Requests: requests, Limits: limits}}
}

func TestQOSClass(t *testing.T) {
	full := list("cpu=1 memory=1Gi")
	none := container(nil, nil)
	for _, tc := range []struct {
		name string
		spec v1.PodSpec
		want v1.PodQOSClass
	}{
		{"no containers", v1.PodSpec{}, v1.PodQOSBestEffort},
		{"nothing set", v1.PodSpec{Containers: []v1.Container{none, none}}, v1.PodQOSBestEffort},
		{"zero quantities", v1.PodSpec{Containers: []v1.Container{
			container(list("cpu=0 memory=0"), list("cpu=0 memory=0")),
		}}, v1.PodQOSBestEffort},
		{"devices do not count", v1.PodSpec{Containers: []v1.Container{
			container(list("example.com/gpu=1"), list("example.com/gpu=1")),
		}}, v1.PodQOSBestEffort},
		{"requests equal limits", v1.PodSpec{Containers: []v1.Container{
			container(full, full),
		}}, v1.PodQOSGuaranteed},
		{"equal in other notation", v1.PodSpec{Containers: []v1.Container{
			container(list("cpu=1000m memory=1024Mi"), full),
		}}, v1.PodQOSGuaranteed},
		{"devices beside full limits", v1.PodSpec{Containers: []v1.Container{
			container(full, list("cpu=1 memory=1Gi example.com/gpu=2")),
		}}, v1.PodQOSGuaranteed},
		{"one container without limits", v1.PodSpec{Containers: []v1.Container{
			container(full, full), none,
		}}, v1.PodQOSBurstable},
		{"init container without limits", v1.PodSpec{
			InitContainers: []v1.Container{none},
			Containers:     []v1.Container{container(full, full)},
		}, v1.PodQOSBurstable},
		{"init container alone asks", v1.PodSpec{
			InitContainers: []v1.Container{container(list("cpu=1"), nil)},
			Containers:     []v1.Container{none},
		}, v1.PodQOSBurstable},
		{"init and app guaranteed", v1.PodSpec{
			InitContainers: []v1.Container{container(full, full)},
			Containers:     []v1.Container{container(full, full)},
		}, v1.PodQOSGuaranteed},
		{"cpu limit only", v1.PodSpec{Containers: []v1.Container{
			container(list("cpu=1"), list("cpu=1")),
		}}, v1.PodQOSBurstable},
		{"request below limit", v1.PodSpec{Containers: []v1.Container{
			container(list("cpu=500m memory=1Gi"), full),
		}}, v1.PodQOSBurstable},
		{"pod level guaranteed", v1.PodSpec{
			Resources:  &v1.ResourceRequirements{Requests: full, Limits: full},
			Containers: []v1.Container{none},
		}, v1.PodQOSGuaranteed},
		{"pod level burstable wins over containers", v1.PodSpec{
			Resources:  &v1.ResourceRequirements{Requests: list("cpu=2")},
			Containers: []v1.Container{container(full, full)},
		}, v1.PodQOSBurstable},
		{"empty pod level is not set", v1.PodSpec{
			Resources:  &v1.ResourceRequirements{},
			Containers: []v1.Container{container(full, full)},
		}, v1.PodQOSGuaranteed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := &v1.Pod{Spec: tc.spec}
			pod.Status.QOSClass = "ignored"
			if got := QOSClass(pod); got != tc.want {
				t.Errorf("QOSClass() = %s, want %s", got, tc.want)
			}
		})
	}
}
