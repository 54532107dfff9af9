package manifest

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestPullPolicy(t *testing.T) {
	for image, want := range map[string]v1.PullPolicy{
		"a": v1.PullAlways, "a:latest": v1.PullAlways, "a:1": v1.PullIfNotPresent,
		"host:5000/a": v1.PullAlways, "host:5000/a:1": v1.PullIfNotPresent,
		"a@sha256:00": v1.PullIfNotPresent, "a:1@sha256:00": v1.PullIfNotPresent,
	} {
		if got := pullPolicy(image); got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
}
