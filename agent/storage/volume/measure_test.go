package volume

import (
	"maps"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Volumes are counted by type, with those that are set up apart, and each PVC is measured once.
func TestMeasure(t *testing.T) {
	s := bind(localAt(t.TempDir()))
	v, _ := newVolumes(t, Config{PVCs: s, Objects: newServer()})
	var pods []*v1.Pod
	for _, uid := range []types.UID{"a", "b", "c"} {
		pvc := pvcVolume("data")
		pvc.Name = "claim"
		pod := podWith(pvc, empty("e", ""), host("h", "/", ""),
			configMapVolume(v1.ConfigMapVolumeSource{LocalObjectReference: named("cfg")}))
		pod.UID = uid
		if pods = append(pods, pod); uid != "c" { // which was not made yet
			setUp(t, v, pod)
		}
	}
	looked := map[string]int{}
	got := v.Meter.Measure(t.Context(), pods, func(by string, _ time.Duration) { looked[by]++ })
	desired := map[string]int{"kubernetes.io/empty-dir": 3, "kubernetes.io/host-path": 3,
		"kubernetes.io/configmap": 3, "kubernetes.io/local-volume": 2}
	actual := map[string]int{"kubernetes.io/empty-dir": 2, "kubernetes.io/host-path": 2,
		"kubernetes.io/configmap": 2, "kubernetes.io/local-volume": 2}
	if !maps.Equal(got.Desired, desired) || !maps.Equal(got.Actual, actual) {
		t.Errorf("desired %v, actual %v", got.Desired, got.Actual)
	}
	has := []PodVolume{{"a", "claim"}, {"b", "claim"}}
	if len(got.Rooms) != 1 || !slices.Equal(got.Rooms[0].Pods, has) || got.Rooms[0].Namespace != "shop" ||
		got.Rooms[0].PVC != "data" || got.Rooms[0].Room.Capacity == 0 ||
		!maps.Equal(looked, map[string]int{"statfs": 1}) {
		t.Errorf("claims %+v, looked at %v", got.Rooms, looked)
	}
}
