package gpu

import (
	"strings"
	"testing"
	"time"
)

// Each readable fault makes a GPU unhealthy for its own reason, for as long as it lasts.
func TestReadings(t *testing.T) {
	for _, c := range []struct {
		reading Reading
		want    Reason
	}{
		{Reading{}, ""},
		{Reading{LinksUp: 18}, ""},
		{Reading{Lost: true, RemapFailed: true}, FellOffBus},
		{Reading{RemapFailed: true, RemapPending: true}, RemapFailed},
		{Reading{RemapPending: true}, RemapPending},
		{Reading{Uncorrected: 1}, MemoryErrors},
		{Reading{LinksUp: 17, LinksDown: 1}, NVLinkDown},
		{Reading{Action: Reset}, ActionRequired},
	} {
		all := ailing(c.reading, history{}, HealthRules{})
		if got := reasonOf(all); got != c.want {
			t.Errorf("%+v: %q, want %q", c.reading, got, c.want)
		}
		if text := Describe(all); (c.want == "") != (text == "") || !strings.HasPrefix(text,
			string(c.want)) {
			t.Errorf("%+v: %q", c.reading, text)
		}
	}
	off := HealthRules{Off: true}
	if all := ailing(Reading{RemapFailed: true, Uncorrected: 2}, history{}, off); len(all) > 0 {
		t.Errorf("with health checks off: %v", all)
	}
	if all := ailing(Reading{Lost: true}, history{}, off); reasonOf(all) != FellOffBus {
		t.Errorf("a GPU that is gone, with health checks off: %v", all)
	}
}

func TestWhichXIDsCount(t *testing.T) {
	for _, c := range []struct {
		rules HealthRules
		xid   uint64
		want  bool
	}{
		{HealthRules{}, 79, true},
		{HealthRules{}, 119, true},
		{HealthRules{}, 9999, true}, // unknown
		// NVIDIA's plugin ignores these.
		{HealthRules{}, 13, false},
		{HealthRules{}, 31, false},
		{HealthRules{}, 43, false},
		{HealthRules{}, 45, false},
		{HealthRules{}, 68, false},
		{HealthRules{}, 109, false},
		{HealthRules{}, 94, false}, // contained: it concerns the program
		{HealthRules{Counted: []uint64{31}}, 31, true},
		{HealthRules{Ignored: []uint64{119}}, 119, false},
		{HealthRules{Ignored: []uint64{119}}, 120, true},
		{HealthRules{NoXIDs: true}, 79, false},
		{HealthRules{Off: true, Counted: []uint64{79}}, 79, false},
	} {
		if got := c.rules.counts(c.xid); got != c.want {
			t.Errorf("%+v: XID %d counts: %t", c.rules, c.xid, got)
		}
	}
}

// An XID is over when the driver says so, when its cause is fine again, or after the configured
// time; never while a reading shows a fault.
func TestXIDsAreOver(t *testing.T) {
	began := time.Unix(1e9, 0)
	for _, c := range []struct {
		name    string
		xid     uint64
		reading Reading
		rules   HealthRules
		after   time.Duration
		over    bool
	}{
		{"just now", 79, Reading{Advises: true}, HealthRules{}, time.Second, false},
		{"the driver wants nothing", 119, Reading{Advises: true}, HealthRules{}, time.Minute, true},
		{"the driver wants a reset", 119, Reading{Advises: true, Action: Reset}, HealthRules{},
			time.Hour, false},
		{"it can be read that all is well", 74, Reading{LinksUp: 18}, HealthRules{}, time.Minute, true},
		{"it can be read that it is not", 74, Reading{LinksDown: 1}, HealthRules{}, time.Hour, false},
		{"nobody says", 119, Reading{}, HealthRules{}, 100 * time.Hour, false},
		{"nobody says, for less than is set", 119, Reading{}, HealthRules{RecoverAfter: time.Hour},
			59 * time.Minute, false},
		{"nobody says, for as long as is set", 119, Reading{}, HealthRules{RecoverAfter: time.Hour},
			time.Hour, true},
	} {
		h := history{}.with(c.xid, began)
		if got := h.pruned(c.reading, c.rules, began.Add(c.after)); (len(got) == 0) != c.over {
			t.Errorf("%s: %v", c.name, got.troubles())
		}
		if len(h) != 1 {
			t.Errorf("%s: the history itself has changed", c.name)
		}
	}
	again := history{}.with(119, began).with(119, began.Add(time.Hour))
	if got := again.pruned(Reading{}, HealthRules{RecoverAfter: time.Hour},
		began.Add(90*time.Minute)); len(got) != 1 {
		t.Error("an XID that came again counts from then on")
	}
}
