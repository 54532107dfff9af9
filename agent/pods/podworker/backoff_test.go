package podworker

import (
	"strings"
	"testing"
	"time"

	"github.com/numalet/numalet/agent/placement/resize"
	"github.com/numalet/numalet/cri"
)

// After a restart of the agent the back-off comes from the records: not shorter than before, and
// as a first crash after a run that was long.
func TestBackOffAfterRestart(t *testing.T) {
	for _, tc := range []struct {
		name string
		runs []run
		at   time.Duration
		want time.Duration
	}{
		{"third crash", []run{{time.Second, 1}}, 14 * time.Second, 20 * time.Second},
		{"after a long run", []run{{time.Hour, 1}, {time.Second, 1}},
			time.Hour + 2*time.Second, 10 * time.Second},
		{"first crash after a long run", []run{{1, 1}, {time.Hour, 1}, {time.Second, 1}},
			time.Hour + 2*time.Second, 10 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(makePod("Always web"))
			w.programs["web"] = tc.runs
			w.until(tc.at)
			before := w.last
			w.memory = newMemory(nil)
			w.round()
			if !w.last.Wake.Equal(before.Wake) {
				t.Errorf("wake at %v, before the restart %v", w.last.Wake, before.Wake)
			}
			newest, _ := w.seen.Container("web")
			if got := w.last.Wake.Sub(newest.Exit.At); got != tc.want {
				t.Errorf("back-off %v, want %v", got, tc.want)
			}
		})
	}
}

// Also sandboxes' comes from the records, and starts again after one that lasted.
func TestSandboxBackOffAfterRestart(t *testing.T) {
	w := newWorld(makePod("Always web"))
	w.until(time.Hour)
	w.noAddress = true
	w.loseSandbox()
	w.until(time.Hour + 25*time.Second)
	const want = "web: ContainerCreating: back-off 20s creating another sandbox: " +
		"pod sandbox is not ready"
	for _, when := range []string{"before", "after"} {
		if got := w.last.Wake.Sub(epoch); got != time.Hour+30*time.Second {
			t.Errorf("%s a restart: wake at %v", when, got)
		}
		if !strings.HasSuffix(want, w.last.Problem.Message) {
			t.Errorf("%s a restart: problem %v", when, w.last.Problem)
		}
		w.memory = newMemory(nil)
		w.round()
	}
	w.seen.Containers = nil // so that it never ran, as far as is known
	w.round()
	if got := w.waiting(); got != want {
		t.Errorf("waiting = %q, want %q", got, want)
	}
}

func TestDelay(t *testing.T) {
	b := BackOff{Initial: time.Second, Max: 5 * time.Second}.withDefaults()
	for attempt, want := range []time.Duration{0, 0, 0, 1, 2, 4, 5, 5} {
		if got := b.delay(uint32(attempt), 2); got != want*time.Second {
			t.Errorf("delay after attempt %d = %v, want %v", attempt, got, want*time.Second)
		}
	}
	if got := b.delay(4_000_000_000, 0); got != b.Max {
		t.Errorf("delay after very many = %v", got)
	}
	small := BackOff{Max: time.Second}.withDefaults()
	if got := small.delay(1, 0); got != time.Second {
		t.Errorf("the most is below the default first delay: delay %v", got)
	}
}

// A clock that was set back by an hour does not make a container that crashed wait for that hour, nor
// is it started without a pause from then on.
func TestClockSetBack(t *testing.T) {
	w := newWorld(makePod("Always web"))
	w.programs["web"] = []run{{time.Second, 1}}
	w.until(20 * time.Second) // the fourth attempt is due in some seconds
	before, _ := w.seen.Container("web")
	for i := range w.seen.Containers {
		c := &w.seen.Containers[i]
		c.StartedAt, c.Exit.At = c.StartedAt.Add(time.Hour), c.Exit.At.Add(time.Hour)
	}
	w.until(6 * time.Minute)
	after, _ := w.seen.Container("web")
	if n := after.Attempt - before.Attempt; n < 3 || n > 6 {
		t.Errorf("%d attempts in six minutes", n)
	}
}

// An exit for which a resize started the container anew is no crash.
func TestResizesAreNoCrashes(t *testing.T) {
	of := func(attempt uint32, resources string) cri.Container {
		return cri.Container{Attempt: attempt, From: cri.Origin{Hash: "h"},
			Annotations: map[string]string{resize.Annotation: resources}}
	}
	records := []cri.Container{of(4, "more"), of(3, "more"), of(2, "some"), of(1, "some"), of(0, "")}
	if got := (BackOff{}).withDefaults().countFrom(0, "h", records); got != 3 {
		t.Errorf("the exit of attempt %d counts as the first, want 3", got)
	}
	if got := (BackOff{}).withDefaults().countFrom(0, "h", records[2:4]); got != 0 {
		t.Errorf("without a resize the exit of attempt %d counts as the first", got)
	}
}
