package eviction

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
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
		"all are measured":                    {nil, horizon, false, true, 0},
		"some are not":                        {[]types.UID{"soon"}, horizon, true, false, refreshing},
		"others are not":                      {[]types.UID{"other"}, horizon, false, true, 0},
		"the disk is full soon":               {[]types.UID{"soon"}, 4 * time.Second, true, false, time.Second},
		"some take long":                      {[]types.UID{"late"}, horizon, true, false, 0},
		"... and what is known is too little": {[]types.UID{"late"}, horizon, false, false, refreshing},
		"... and the last was in vain":        {[]types.UID{"late"}, horizon, true, true, refreshing},
		"... and the disk is full soon":       {[]types.UID{"late"}, 8 * time.Second, false, true, 2 * time.Second},
	} {
		r.doubt = tc.doubt
		waits := func(now time.Duration) bool { return r.waits(tc.old, tc.lasts, tc.reaches, at(now)) }
		if waits(tc.want) || tc.want > 0 && !waits(tc.want-1) {
			t.Errorf("%s: it does not wait for %v", name, tc.want)
		}
	}
}
