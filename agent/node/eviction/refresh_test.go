package eviction

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/internal/podtest"
)

// TestRefresh: when pods are to be measured anew, and how long that is awaited.
func TestRefresh(t *testing.T) {
	at := func(d time.Duration) time.Time { return time.Unix(1000, 0).Add(d) }
	r := refresh{asked: at(0), soon: sets.New[types.UID]("soon"), late: sets.New[types.UID]("late")}
	for name, tc := range map[string]struct {
		acted, doubt, now time.Duration
		want              bool
	}{
		"just asked":              {-time.Second, -time.Second, time.Second, false},
		"asked long ago":          {-time.Second, -time.Second, period, true},
		"something was done":      {time.Second, -time.Second, 2 * time.Second, true},
		"an eviction was in vain": {-time.Second, time.Second, 2 * time.Second, true},
	} {
		if got := r.due(state{doubt: at(tc.doubt)}, at(tc.acted), at(tc.now)); got != tc.want {
			t.Errorf("%s: due is %t", name, got)
		}
	}
	for name, tc := range map[string]struct {
		old            []types.UID
		lasts          time.Duration
		reaches, doubt bool
		want           time.Duration // it waits before, and not then
	}{
		"all are measured":                              {nil, horizon, false, true, 0},
		"some are not":                                  {[]types.UID{"soon"}, horizon, true, false, refreshing},
		"others are not":                                {[]types.UID{"other"}, horizon, false, true, 0},
		"the disk is full soon":                         {[]types.UID{"soon"}, 4 * time.Second, true, false, time.Second},
		"some take long":                                {[]types.UID{"late"}, horizon, true, false, 0},
		"... and what is known is too little":           {[]types.UID{"late"}, horizon, false, false, refreshing},
		"... and the last was in vain":                  {[]types.UID{"late"}, horizon, true, true, refreshing},
		"... and too little, and the disk is full soon": {[]types.UID{"late"}, 8 * time.Second, false, true, refreshing},
		"... and in vain, and the disk is full soon":    {[]types.UID{"late"}, 8 * time.Second, true, true, 2 * time.Second},
	} {
		r.doubt = tc.doubt
		waits := func(now time.Duration) bool { return r.waits(tc.old, tc.lasts, tc.reaches, at(now)) }
		if waits(tc.want) || tc.want > 0 && !waits(tc.want-1) {
			t.Errorf("%s: it does not wait for %v", name, tc.want)
		}
	}
}

// A pod that runs and of which a volume was never measured was measured never; before it runs it has
// nothing there.
func TestNeverMeasured(t *testing.T) {
	now := metav1.Now()
	c := Candidate{Pod: podtest.New("a", podtest.Containers("main"), podtest.Mounts(v1.Volume{Name: "cache",
		VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})),
		Stats: &statsapi.PodStats{EphemeralStorage: &statsapi.FsStats{Time: now}}}
	if at := measuredAt(&c); !at.Equal(now.Time) {
		t.Errorf("before it runs: %v", at)
	}
	c.Stats.Containers = []statsapi.ContainerStats{{Name: "main"}}
	if at := measuredAt(&c); !at.IsZero() {
		t.Errorf("never measured: %v", at)
	}
	c.Stats.VolumeStats = []statsapi.VolumeStats{{Name: "cache", FsStats: statsapi.FsStats{Time: now}}}
	if at := measuredAt(&c); !at.Equal(now.Time) {
		t.Errorf("measured: %v", at)
	}
}
