package status

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// volumeHealth returns the health of the pod's volumes: what was said before, with what drivers say now.
// A condition whose message alone is another one does not change it. A volume that was ill keeps its
// entry, without conditions.
func volumeHealth(in Input) []v1.PodVolumeHealth {
	out := slices.Clone(in.Previous.VolumeHealth)
	for _, name := range slices.Sorted(maps.Keys(in.Volumes)) {
		conditions := in.Volumes[name]
		at := slices.IndexFunc(out, func(h v1.PodVolumeHealth) bool { return h.Name == name })
		switch {
		case at < 0 && len(conditions) == 0, at >= 0 && sameIllness(out[at].HealthConditions, conditions):
			continue
		case at < 0:
			at, out = len(out), append(out, v1.PodVolumeHealth{})
		}
		out[at] = v1.PodVolumeHealth{Name: name, HealthConditions: slices.Clone(conditions),
			LastTransitionTime: metav1.NewTime(in.Now)}
	}
	return out
}

// sameIllness reports whether two lists have the same statuses with the same reasons.
func sameIllness(a, b []v1.VolumeHealthCondition) bool {
	type illness struct {
		status v1.VolumeHealthStatusType
		reason string
	}
	set := func(all []v1.VolumeHealthCondition) map[illness]bool {
		out := map[illness]bool{}
		for _, c := range all {
			out[illness{c.Status, c.Reason}] = true
		}
		return out
	}
	return maps.Equal(set(a), set(b))
}
