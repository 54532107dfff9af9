package pod

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

func sized(cpus string) *v1.Pod { return podtest.New("", podtest.Containers("a cpu="+cpus)) }

func cpus(p *v1.Pod) string {
	if p == nil {
		return "-"
	}
	return p.Spec.Containers[0].Resources.Limits.Cpu().String()
}

// What a pod was admitted with is its own until it is gone, whatever its source has it ask for
// since; that it is not given that is told once for each change.
func TestAdmittedResourcesStay(t *testing.T) {
	before := podspec.ResourcesOf(sized("8"))
	for name, test := range map[string]struct {
		events []Event
		want   string // CPUs of the pod and wanted, after each event, and what was told
	}{
		"resized while it runs": {[]Event{
			{Kind: Desired, Pod: sized("8")}, {Kind: Admitted, Pod: sized("8")},
			{Kind: Desired, Pod: sized("1")}, {Kind: Desired, Pod: sized("1")},
			{Kind: Desired, Pod: sized("2")}, {Kind: Desired, Pod: sized("8")},
			{Kind: Desired, Pod: sized("2")},
		}, "8/- 8/- 8/1 told 8/1 8/2 told 8/- 8/2 told"},
		"resized before it was admitted": {[]Event{
			{Kind: Desired, Pod: sized("8")}, {Kind: Desired, Pod: sized("1")}, {Kind: Admitted, Pod: sized("1")},
		}, "8/- 1/- 1/-"},
		"resized after it was decided on": {[]Event{
			{Kind: Desired, Pod: sized("8")}, {Kind: Desired, Pod: sized("1")},
			{Kind: Admitted, Pod: sized("8")}, {Kind: Desired, Pod: sized("1")},
		}, "8/- 1/- 8/1 told 8/1"},
		"resized while the agent was away": {[]Event{
			{Kind: Desired, Pod: sized("1"), Runtime: Runtime{
				Recorded: true, Running: true, Admitted: &before}},
			{Kind: Desired, Pod: sized("1"), Runtime: Runtime{
				Recorded: true, Running: true, Admitted: &before}},
			{Kind: Admitted, Pod: sized("8")}, {Kind: Desired, Pod: sized("1")},
		}, "8/1 told 8/1 8/1 8/1"},
		"deleted while the agent was away": {[]Event{
			{Kind: Deleted, Pod: sized("1"), Runtime: Runtime{Recorded: true, Admitted: &before}},
		}, "8/1"},
		"deleted": {[]Event{
			{Kind: Desired, Pod: sized("8")}, {Kind: Admitted, Pod: sized("8")}, {Kind: Deleted, Pod: sized("1")},
		}, "8/- 8/- 8/1 told"},
		"another life": {[]Event{
			{Kind: Desired, Pod: sized("8")}, {Kind: Admitted, Pod: sized("8")}, {Kind: Removed, Pod: sized("8")},
			{Kind: Desired, Pod: sized("1")}, {Kind: Gone}, {Kind: Released},
		}, "8/- 8/- 8/- 8/- 8/- 1/-"},
	} {
		t.Run(name, func(t *testing.T) {
			var r Record
			var got []string
			for _, e := range test.events {
				next, effects := Step(r, e)
				r = next
				got = append(got, fmt.Sprintf("%s/%s", cpus(r.Pod), cpus(r.Wanted)))
				for _, f := range effects {
					switch {
					case f.Kind == Infeasible:
						got = append(got, "told")
					case f.Kind == Submit || f.Kind == Run || f.Kind == Write:
						if cpus(f.Pod) != cpus(r.Pod) && r.Next == nil {
							t.Errorf("%s: %s with %s CPUs", e.Kind, f.Kind, cpus(f.Pod))
						}
					}
					if f.Kind == Write && r.Next == nil && f.Wanted != r.Wanted {
						t.Errorf("%s: written is %s", e.Kind, cpus(f.Wanted))
					}
				}
			}
			if text := strings.Join(got, " "); text != test.want {
				t.Errorf("got  %s\nwant %s", text, test.want)
			}
		})
	}
}
