package health

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation"
)

func parseCPUs(t *testing.T, list string) cpuset.CPUSet {
	t.Helper()
	set, err := cpuset.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestOfflineCPUs follows a pod with container a on CPUs 2-3, b on 4, and one that shares.
func TestOfflineCPUs(t *testing.T) {
	const (
		partly = "Warning CPUOffline CPUs 3 of container a are offline: it runs on 2 alone; " +
			"bring them online, or delete the pod so that it gets others"
		wholly = "Warning CPUOffline all CPUs 2-3 of container a are offline: it runs on CPUs of " +
			"others until they are online again; bring them online, or delete the pod so that it " +
			"gets others"
		legacy = "Warning CPUOffline all CPUs 4 of container b are offline: it runs on CPUs of " +
			"others until it is restarted with its CPUs online; or delete the pod so that it " +
			"gets others"
	)
	held := map[types.UID]allocation.Pod{"p": {Containers: map[string]allocation.Container{
		"a": {allocation.CPUs(parseCPUs(t, "2-3"))}, "b": {allocation.CPUs(parseCPUs(t, "4"))}, "shares": {},
	}}}
	known := offlineCPUs{}
	for _, step := range []struct {
		what, online string
		unified      bool
		gone         bool // whether the pod is gone
		want         []string
	}{
		{"all online", "0-7", true, false, nil},
		{"a free CPU goes", "0-6", true, false, nil},
		{"a CPU of a goes", "0-2,4-6", true, false, []string{partly}},
		{"it is still away", "0-2,4-7", true, false, nil},
		{"the other one goes too", "0-1,4-7", true, false, []string{wholly}},
		{"one is back", "0-2,4-7", true, false, []string{
			"Normal CPUOnline CPUs 2 of container a are online again: it runs on 2"}},
		{"the other one is back", "0-7", true, false, []string{
			"Normal CPUOnline CPUs 3 of container a are online again: it runs on 2-3"}},
		{"those of both go", "0-2,5-7", false, false, []string{partly, legacy}},
		{"that of b is back", "0-2,4-7", false, false, []string{
			"Normal CPUOnline CPUs 4 of container b are online again: restart the container so " +
				"that it runs on 4"}},
		{"one for another", "0-1,3-7", true, false, []string{
			"Warning CPUOffline CPUs 2 of container a are offline: it runs on 3 alone; bring " +
				"them online, or delete the pod so that it gets others"}},
		{"the pod is gone", "0-1,3-7", true, true, nil},
		{"and so is nobody told", "0-7", true, true, nil},
		{"a pod comes whose CPU is offline", "0-2,4-7", true, false, []string{partly}},
	} {
		now := held
		if step.gone {
			now = nil
		}
		var got []string
		for _, c := range known.update(now, parseCPUs(t, step.online)) {
			kind, reason := c.event()
			got = append(got, kind+" "+reason+" "+c.message(step.unified))
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("%s: got\n%q, want\n%q", step.what, got, step.want)
		}
	}
}
