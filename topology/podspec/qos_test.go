package podspec

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/internal/podtest"
)

func TestQOSClass(t *testing.T) {
	pod := func(containers ...string) *v1.Pod {
		return podtest.New("", podtest.Containers(containers...))
	}
	const full = "c cpu=1 memory=1Gi"
	for _, tc := range []struct {
		name string
		pod  *v1.Pod
		want v1.PodQOSClass
	}{
		{"no containers", pod(), v1.PodQOSBestEffort},
		{"nothing set", pod("c", "c"), v1.PodQOSBestEffort},
		{"zero quantities", pod("c cpu=0 memory=0"), v1.PodQOSBestEffort},
		{"devices do not count", pod("c gpu=1"), v1.PodQOSBestEffort},
		{"requests equal limits", pod(full), v1.PodQOSGuaranteed},
		{"equal in other notation", pod("c cpu=1000m..1 memory=1024Mi..1Gi"), v1.PodQOSGuaranteed},
		{"devices beside full limits", pod(full + " gpu=..2"), v1.PodQOSGuaranteed},
		{"one container without limits", pod(full, "c"), v1.PodQOSBurstable},
		{"init container without limits", pod("i!", full), v1.PodQOSBurstable},
		{"init container alone asks", pod("i! cpu=1..", "c"), v1.PodQOSBurstable},
		{"init and app guaranteed", pod("i! cpu=1 memory=1Gi", full), v1.PodQOSGuaranteed},
		{"cpu limit only", pod("c cpu=1"), v1.PodQOSBurstable},
		{"request below limit", pod("c cpu=500m..1 memory=1Gi"), v1.PodQOSBurstable},
		{"pod level guaranteed", podtest.New("", podtest.Containers("c"),
			podtest.Resources("cpu=1 memory=1Gi")), v1.PodQOSGuaranteed},
		{"pod level burstable wins over containers", podtest.New("", podtest.Containers(full),
			podtest.Resources("cpu=2..")), v1.PodQOSBurstable},
		{"empty pod level is not set", podtest.New("", podtest.Containers(full),
			podtest.Resources("")), v1.PodQOSGuaranteed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.pod.Status.QOSClass = "ignored"
			if got := QOSClass(tc.pod); got != tc.want {
				t.Errorf("QOSClass() = %s, want %s", got, tc.want)
			}
		})
	}
}
