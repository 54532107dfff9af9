package podworker

import (
	"math"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// TestGraceWithoutEnd: seconds that are no time.Duration any more are a long time, not a short one.
func TestGraceWithoutEnd(t *testing.T) {
	for seconds, want := range map[int64]time.Duration{
		0: 0, 30: 30 * time.Second, math.MaxInt64: maxGrace, math.MaxInt64 / 1_000_000_000: maxGrace,
	} {
		spec, deleted := &v1.Pod{}, &v1.Pod{}
		spec.Spec.TerminationGracePeriodSeconds = ptr.To(seconds)
		deleted.DeletionGracePeriodSeconds = ptr.To(seconds)
		for _, pod := range []*v1.Pod{spec, deleted} {
			if got := Grace(pod); got != want {
				t.Errorf("%d seconds are %v, want %v", seconds, got, want)
			}
		}
	}
}
