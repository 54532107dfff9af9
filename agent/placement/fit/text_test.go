package fit_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/fit"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

func TestParseCount(t *testing.T) {
	for text, want := range map[string]fit.Question{
		"": {Copies: 1}, "1": {Copies: 1}, "10000": {Copies: fit.MaxCopies},
		"max": {Copies: fit.MaxCopies, Most: true},
	} {
		got, err := fit.ParseCount(text)
		if err != nil || got.Copies != want.Copies || got.Most != want.Most {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"0", "-1", "10001", "two", "1.5", "MAX", " "} {
		if _, err := fit.ParseCount(text); err == nil ||
			!strings.Contains(err.Error(), "want a number from 1 to 10000, or max") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// The text says how many copies fit, where, and why no more do.
func TestText(t *testing.T) {
	s := offline(t, gpus(true, 0, 1), allocation.State{})
	big := pod("big", "main cpu=3 example.com/gpu=1")
	for name, tt := range map[string]struct {
		question fit.Question
		want     []string
	}{
		"one": {fit.Question{Pods: []*v1.Pod{big}}, []string{
			"Pod default/big: would be admitted\n",
			"\nWhere it would be\n  main: all on NUMA node 0\n",
		}},
		"several": {fit.Question{Pods: []*v1.Pod{big, pod("more", "main cpu=5")}}, []string{
			"Pod default/big: would be admitted\n",
			"\n---\n\nPod default/more: would be rejected, UnexpectedAdmissionError\n",
			"\n---\n\n1 of 2 pods fit, each beside those before it.\n",
		}},
		"copies": {fit.Question{Pods: []*v1.Pod{big}, Copies: 3}, []string{
			"2 of 3 copies fit.\n\n  copy 1 of default/big: main has CPUs 1-3 and " +
				"example.com/gpu gpu-0, all on NUMA node 0\n  copy 2 of default/big: ",
			"\nWhy not one more:\n\nPod default/big: would be rejected, Unexpected",
			"\nNote: the device plugin of example.com/gpu prefers ",
		}},
		"the most": {fit.Question{Pods: []*v1.Pod{big}, Copies: 9, Most: true}, []string{
			"2 copies fit.\n", "\nWhy not one more:\n",
		}},
		"no more tried": {fit.Question{Pods: []*v1.Pod{big}, Copies: 2, Most: true}, []string{
			"2 copies fit; more were not tried.\n",
		}},
		"shared": {fit.Question{Pods: []*v1.Pod{pod("s", "main cpu=500m")}, Copies: 2}, []string{
			"2 of 2 copies fit.\n\n  copies 1-2 of default/s: each shares CPUs\n",
		}},
		"two pods": {fit.Question{Pods: []*v1.Pod{pod("s", "main cpu=500m"), big}, Copies: 2}, []string{
			"2 of 2 copies fit.\n\n  copies 1-2 of default/s: each shares CPUs\n  copy 1 of default/big: main has",
			"\n  copy 2 of default/big: main has",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			a := place(t, s, tt.question)
			a.Warnings = []string{"of the manifest"}
			text := a.Text()
			for _, part := range append(tt.want, "\nWarning: of the manifest\n") {
				if strings.Count(text, part) != 1 {
					t.Errorf("not once %q:\n%s", part, text)
				}
			}
			if a.Fits && strings.Contains(text, "Why not") && !a.Most {
				t.Errorf("all fit, and yet:\n%s", text)
			}
		})
	}
}

// Blocked is the resource that blocked a pod.
func TestBlocked(t *testing.T) {
	s := offline(t, devicemanager.Inventory{}, allocation.State{})
	for limits, want := range map[string]string{
		"main cpu=1": "", "main cpu=1 example.com/gpu=1": "example.com/gpu", "main cpu=9": "cpu",
	} {
		a := place(t, s, fit.Question{Pods: []*v1.Pod{pod("a", limits)}})
		if got := a.Pods[0].Blocked(); got != want {
			t.Errorf("%s: %q", limits, got)
		}
	}
}

// The blocking resource is the one the pod was rejected for, not one whose plugin is missing too.
func TestWhatIsInTheWayWithoutDevices(t *testing.T) {
	s := offline(t, devicemanager.Inventory{}, allocation.State{})
	for name, tt := range map[string]struct {
		ask, outcome, blocked string
	}{
		"CPUs are short": {"main cpu=20 example.com/gpu=1", "Reject", "cpu"},
		"only devices":   {"main cpu=2 example.com/gpu=1", "Wait", "example.com/gpu"},
	} {
		a := place(t, s, fit.Question{Pods: []*v1.Pod{pod("p", tt.ask)}})
		if p := a.Pods[0]; p.Record.Outcome != tt.outcome || p.Blocked() != tt.blocked {
			t.Errorf("%s: %s, blocked by %q: %s", name, p.Record.Outcome, p.Blocked(), p.Text)
		}
	}
}
