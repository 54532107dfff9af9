package probe

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/pods/status"
)

// An answer counts if enough equal ones came in a row. P and F are answers, + marks those that
// count.
func TestThresholds(t *testing.T) {
	for _, tc := range []struct {
		success, failure int32
		answers, want    string
	}{
		{1, 3, "PPFFFFP", "++..+++"},
		{1, 1, "PFPF", "++++"},
		{2, 3, "PPFPPFF", ".+..+.."},
		{0, 0, "PFF", "+++"}, // a manifest without defaults
	} {
		spec := &v1.Probe{SuccessThreshold: tc.success, FailureThreshold: tc.failure}
		var r run
		got := ""
		for _, a := range tc.answers {
			answer := status.Passes
			if a == 'F' {
				answer = status.Fails
			}
			if r.add(answer, spec) {
				got += "+"
			} else {
				got += "."
			}
		}
		if got != tc.want {
			t.Errorf("%+v: %s, want %s", tc, got, tc.want)
		}
	}
}

func TestWhenDue(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds float64) time.Time {
		return start.Add(time.Duration(seconds * float64(time.Second)))
	}
	spec := &v1.Probe{InitialDelaySeconds: 5, PeriodSeconds: 10}
	for now, want := range map[float64]float64{0: 5, 5: 5, 6: 6, 31.5: 31.5} {
		if got := first(spec, start, at(now), false); !got.Equal(at(want)) {
			t.Errorf("first, at %v: %v, want %v", now, got.Sub(start), want)
		}
	}
	for now, want := range map[float64]float64{0: 5, 5: 5, 6: 15, 31.5: 35} {
		if got := first(spec, start, at(now), true); !got.Equal(at(want)) {
			t.Errorf("first, keeping its times, at %v: %v, want %v", now, got.Sub(start), want)
		}
	}
	// The clock was set back after the container's start, and may be set again.
	for _, keeps := range []bool{false, true} {
		if got := first(spec, start, at(-3600), keeps); !got.Equal(at(-3595)) {
			t.Errorf("first, an hour before the start: %v", got.Sub(start))
		}
		wall := time.Now().Add(-time.Minute).Round(0)
		for name, due := range map[string]time.Time{"first": first(spec, wall, time.Now(), keeps),
			"next": next(spec, first(spec, wall, time.Now(), keeps), time.Now()),
			"wake": wakeFor(time.Now().Add(time.Second))} {
			if !strings.Contains(due.String(), " m=") {
				t.Errorf("%s is %v, which moves when the clock is set", name, due)
			}
		}
	}
	for now, want := range map[float64]float64{15: 25, 15.2: 25, 24.9: 25, 25: 35, 61: 65, 3: 25} {
		if got := next(spec, at(15), at(now)); !got.Equal(at(want)) {
			t.Errorf("next after 15, at %v: %v, want %v", now, got.Sub(start), want)
		}
	}
	if got := next(&v1.Probe{}, start, start); !got.Equal(at(1)) {
		t.Errorf("without a period: %v", got.Sub(start))
	}
}

// wakeFor returns the time of the wake-up for a probe that is due in the future.
func wakeFor(due time.Time) time.Time {
	var s schedule
	s.add(&probe{due: due})
	_, then := s.take(time.Now())
	return then
}
