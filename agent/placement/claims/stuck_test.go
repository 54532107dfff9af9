package claims

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestStuck: what keeps a pod that has ended is said of each driver that has something to undo.
func TestStuck(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	row := func(d DriverRow) Row {
		d.Driver, d.Since = "gpu.io", now.Add(-time.Minute)
		return Row{Namespace: "ns", Name: "a", Users: []UserRow{{UID: "runs"}, {UID: "ended", Ended: true}},
			Drivers: []DriverRow{d}}
	}
	const or = ", or give the claim up: numalet claim forget ns/a"
	for _, c := range []struct {
		is   DriverRow
		want string
	}{
		{DriverRow{State: notCalled, LastError: "away"}, ""},
		{DriverRow{State: "Prepared", Registered: true}, ""},
		{DriverRow{State: "Prepared", LastError: "DRA driver gpu.io is not registered"},
			"it is not registered, and has to unprepare the claim; start it"},
		{DriverRow{State: "Unpreparing", Registered: true, LastError: "busy\nbus"},
			"it has not unprepared the claim since 60s ago, at last: busy bus; it is tried again. Look at its log"},
		{DriverRow{State: "Unpreparing", Registered: true},
			"it has not answered NodeUnprepareResources since 60s ago; look at its log"},
	} {
		var want []string
		if c.want != "" {
			want = []string{"claim a, driver gpu.io: " + c.want + or}
		}
		if diff := cmp.Diff(want, Stuck([]Row{row(c.is)}, "ended", now)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c.is, diff)
		}
		if got := Stuck([]Row{row(c.is)}, "runs", now); got != nil {
			t.Errorf("a pod that runs waits for %q", got)
		}
	}
	if got := Stuck([]Row{row(DriverRow{State: "Unpreparing", Registered: true})}, "ended",
		now.Add(-55*time.Second)); got != nil {
		t.Errorf("after 5 s it says %q", got)
	}
}
