package gpu

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func newWatch() *watch {
	return &watch{counts: newCounts(), histories: map[part]history{}, log: func(string, ...any) {}}
}

// ails lists the reasons of the GPUs by index.
func (w *watch) ails() string {
	var out []string
	for _, g := range w.last.GPUs {
		out = append(out, string(reasonOf(w.troubles(g, NoInstance))))
	}
	return strings.Join(out, ",")
}

// The end of a session for another reason than an unloaded driver heals nothing.
func TestSessionsHealNothing(t *testing.T) {
	w, now := newWatch(), time.Now()
	s := gpus(2)
	s.GPUs[1].Reading.LinksUp = 18
	w.read(s, now)
	w.event(Event{GPU: "GPU-0", Instance: NoInstance, Kind: XIDEvent, XID: 119}, now)
	w.gone(errors.New("wait for events: Unknown Error"))
	if got := w.ails(); got != "DriverGone,DriverGone" {
		t.Errorf("without a session: %s", got)
	}
	s.GPUs[1].Reading.LinksUp = 17 // the new session has never seen the other one up
	w.read(s, now)
	if got := w.ails(); got != "CriticalXID,NVLinkDown" {
		t.Errorf("in a new session: %s", got)
	}
	w.gone(ErrNoDriver)
	w.gone(errors.New("initialize NVML: Unknown Error")) // on the way up
	w.read(s, now)
	if got := w.ails(); got != "," {
		t.Errorf("with a driver that was loaded anew: %s", got)
	}
}

// A GPU that cannot be read is unhealthy, and only that one; when it can be read again, it does not
// count as reset. A GPU that was never read gives a warning.
func TestSilentGPU(t *testing.T) {
	w, now := newWatch(), time.Now()
	s := gpus(3)
	w.read(s, now)
	w.event(Event{GPU: "GPU-1", Instance: NoInstance, Kind: XIDEvent, XID: 119}, now)
	without := s
	without.GPUs = append([]GPU{s.GPUs[0]}, s.GPUs[2:]...)
	without.Silent = map[int]Silence{1: {Said: "Unknown Error"}}
	w.read(without, now)
	if got := w.ails(); got != ",,NoAnswer" {
		t.Errorf("while it does not answer: %s", got)
	}
	w.read(s, now)
	if got := w.ails(); got != ",CriticalXID," {
		t.Errorf("when it answers again: %s", got)
	}
	without.Silent = map[int]Silence{1: {Lost: true, Said: "GPU is lost"}}
	w.read(without, now)
	if got := w.ails(); got != ",,FellOffBus" {
		t.Errorf("off the bus: %s", got)
	}
	w = newWatch()
	w.read(without, now)
	if said := strings.Join(w.doubts(), "\n"); !strings.Contains(said, "GPU 1") ||
		!strings.Contains(said, "GPU is lost") {
		t.Errorf("of one that was never there is said %q", said)
	}
}

// An event of an instance concerns only that instance; an event without a known GPU concerns all
// GPUs.
func TestWhoseEvent(t *testing.T) {
	w, now := newWatch(), time.Now()
	s := gpus(2, []string{"1g.10gb", "1g.10gb"})
	for i := range s.GPUs[0].Instances {
		s.GPUs[0].Instances[i].GPU = 7 + i
	}
	w.read(s, now)
	w.event(Event{GPU: "GPU-0", Instance: 8, Kind: XIDEvent, XID: 119}, now)
	for instance, want := range map[int]int{NoInstance: 0, 7: 0, 8: 1} {
		if got := w.troubles(s.GPUs[0], instance); len(got) != want {
			t.Errorf("instance %d: %v, want %d", instance, got, want)
		}
	}
	all, _ := w.offers(Settings{MIG: MIGMixed})
	for n, d := range all.resources[migPrefix+"1g.10gb"].devices {
		if sick := len(d.troubles) > 0; sick != (n == 1) {
			t.Errorf("MIG device %s is sick: %t", d.id, sick)
		}
	}
	w.event(Event{Instance: NoInstance, Kind: DoubleBitEvent}, now)
	if got := w.ails(); got != "CriticalXID,CriticalXID" {
		t.Errorf("after an event of an unknown GPU: %s", got)
	}
	if got := w.troubles(s.GPUs[1], NoInstance); len(got) != 1 || !strings.Contains(got[0].Text, "XID 48") {
		t.Errorf("a double bit error is %v", got)
	}
}
