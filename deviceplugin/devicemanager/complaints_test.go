package devicemanager

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/cmd/numalet-lab/sim"
)

// A frequent complaint is logged once, and forgotten after it stops.
func TestHabitsPass(t *testing.T) {
	now := time.Now()
	m := &complaints{}
	reported := 0
	for i := range 4 * mostRepeats {
		if m.listed(now.Add(time.Duration(i)*time.Millisecond), 100, 1) != "" {
			reported++
		}
	}
	if reported != 1 {
		t.Errorf("told %d times, want once", reported)
	}
	if got := m.list(now.Add(paceSpan)); len(got) != 1 || got[0].Reason != "RepeatsLists" {
		t.Errorf("complaints: %v", got)
	}
	if got := m.list(now.Add(4 * paceSpan)); len(got) > 0 {
		t.Errorf("after it has stopped: %v", got)
	}
	slow := &complaints{}
	for i := range 4 * mostRepeats {
		at := now.Add(time.Duration(i) * 2 * time.Second)
		slow.listed(at, 100, 1)
		slow.registered(at.Add(time.Duration(i) * 10 * time.Second))
		if got := slow.list(at); len(got) > 0 {
			t.Fatalf("a list each 2 s, a registration each 12 s: %v", got)
		}
	}
	if m.listed(now, kubeletList+1, 0); len(m.list(now.Add(4*paceSpan))) != 1 {
		t.Errorf("a long list is not told")
	}
	if m.listed(now, kubeletList, 0); len(m.list(now.Add(4*paceSpan))) > 0 {
		t.Errorf("a list that is long no more is told")
	}
}

// The complaint about a plugin that restarts does not blame a timer.
func TestRegistersOften(t *testing.T) {
	for losses, want := range map[int]string{
		0: "and not on a timer", 3: "and not on a timer", 10: "since it restarts: its connection ended 10 times",
	} {
		now, m, text := time.Now(), &complaints{}, ""
		for i := range mostRegistrations + 1 {
			if i > 0 && i <= losses {
				m.lost(now)
			}
			text = m.registered(now.Add(time.Duration(i) * time.Second))
		}
		if !strings.Contains(text, want) {
			t.Errorf("lost %d times: %q, want %q", losses, text, want)
		}
	}
	m := &complaints{}
	now := time.Now()
	for range mostRegistrations {
		m.lost(now)
		m.registered(now.Add(2 * paceSpan))
	}
	if text := m.registered(now.Add(2 * paceSpan)); !strings.Contains(text, "timer") {
		t.Errorf("losses of another minute count: %q", text)
	}
}

func TestPluginThatRestartsOften(t *testing.T) {
	r := newRig(t, Config{})
	plugin := r.plugin(sim.Config{Resource: gpu})
	for i := range mostRegistrations + 2 {
		plugin.untilRegistered(i + 1)
		r.untilConnected(gpu)
		plugin.must(plugin.Restart(t.Context()))
	}
	eventually(t, "its restarts to be told", func() bool {
		return slices.ContainsFunc(r.Peers()[0].Complaints, func(c Complaint) bool {
			return c.Reason == "RegistersOften" && strings.Contains(c.Message, "since it restarts")
		})
	})
}

// Habits belong to a socket, however often its plugin registers.
func TestHabitsOutliveARegistration(t *testing.T) {
	table := &table{}
	register := func(socket string) *complaints {
		l := newTestLink(gpu, socket)
		l.behavior.complaints.Store(&complaints{})
		table.apply(event{kind: linkRegistered, link: l})
		return l.behavior.complaints.Load()
	}
	first := register("/a")
	if other := register("/b"); other == first {
		t.Error("another plugin has the complaints of the first one")
	}
	if again := register("/a"); again != first {
		t.Error("a plugin that registers again has no complaints")
	}
}

func TestOptionsAgree(t *testing.T) {
	for _, c := range []struct {
		said  *v1beta1.DevicePluginOptions
		asked Options
		want  string
	}{
		{nil, Options{}, ""},
		{nil, Options{Released: ReleasedWanted}, ""},
		{nil, Options{Preferred: true}, "{GetPreferredAllocationAvailable: false, " +
			"PreStartRequired: false}"},
		{&v1beta1.DevicePluginOptions{PreStartRequired: true}, Options{PreStart: true}, ""},
	} {
		var how behavior
		how.complaints.Store(&complaints{})
		how.introduced = c.said
		text := how.answered(c.asked)
		if (text == "") != (c.want == "") || !strings.Contains(text, c.want) {
			t.Errorf("%v, asked %v: %q", c.said, c.asked, text)
		}
	}
}
