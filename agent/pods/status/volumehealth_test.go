package status

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The status has what drivers say of volumes, since when the conditions are these. What is not known
// stays as it was, and other words are not news.
func TestVolumeHealth(t *testing.T) {
	then, now := time.Unix(100, 0), time.Unix(200, 0)
	slow := func(message string) []v1.VolumeHealthCondition {
		return []v1.VolumeHealthCondition{{Status: v1.VolumeHealthDegraded, Reason: "Slow", Message: message}}
	}
	has := func(name string, at time.Time, conditions []v1.VolumeHealthCondition) v1.PodVolumeHealth {
		return v1.PodVolumeHealth{Name: name, HealthConditions: conditions, LastTransitionTime: metav1.NewTime(at)}
	}
	before := []v1.PodVolumeHealth{has("a", then, slow("one")), has("b", then, nil)}
	for name, test := range map[string]struct {
		said map[string][]v1.VolumeHealthCondition
		want []v1.PodVolumeHealth
	}{
		"nothing is known": {nil, before},
		"other words":      {map[string][]v1.VolumeHealthCondition{"a": slow("two"), "b": nil, "c": nil}, before},
		"well again":       {map[string][]v1.VolumeHealthCondition{"a": nil}, []v1.PodVolumeHealth{has("a", now, nil), before[1]}},
		"ill": {map[string][]v1.VolumeHealthCondition{"b": slow(""), "c": slow("")},
			[]v1.PodVolumeHealth{before[0], has("b", now, slow("")), has("c", now, slow(""))}},
	} {
		got := Generate(Input{Pod: &v1.Pod{}, Previous: v1.PodStatus{VolumeHealth: before}, Volumes: test.said, Now: now})
		if diff := cmp.Diff(test.want, got.VolumeHealth); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
	if before[0].HealthConditions[0].Message != "one" || !before[1].LastTransitionTime.Time.Equal(then) {
		t.Errorf("the previous status was changed: %+v", before)
	}
}
