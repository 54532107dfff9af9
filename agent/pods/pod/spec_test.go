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

// running returns the events of a pod that runs with so many CPUs.
func runs(cpus string) []Event {
	return []Event{{Kind: Desired, Pod: sized(cpus)}, {Kind: Admitted, Pod: sized(cpus)}}
}

// A pod has what it was allocated, whatever its source asks for since. Admission is asked once for each change,
// and what it allocates is applied.
func TestResizes(t *testing.T) {
	before := podspec.ResourcesOf(sized("8"))
	away := Runtime{Recorded: true, Running: true, Allocated: &before}
	deferred := Event{Kind: NotResized, Pod: sized("16"), Why: Why{Reason: "Deferred", Message: "no room"}}
	reworded, infeasible := deferred, deferred
	reworded.Why = Why{Reason: "Deferred", Message: "less room", Silent: true}
	infeasible.Why.Reason = "Infeasible"
	halfway := sized("8")
	halfway.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue,
		ObservedGeneration: 5}}
	untold := sized("8")
	untold.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "a",
		AllocatedResources: sized("4").Spec.Containers[0].Resources.Requests}}
	for name, test := range map[string]struct {
		events []Event
		want   string // CPUs of the pod and wanted, how far a resize is, and what is done, after each event
	}{
		"is allocated": {append(runs("8"),
			Event{Kind: Desired, Pod: sized("1")}, Event{Kind: Desired, Pod: sized("1")},
			Event{Kind: Resized, Pod: sized("1")}, Event{Kind: Settled}, Event{Kind: Settled},
		), "8/- | 8/- | 8/1 ask | 8/1 | 1/- in progress ResizeStarted apply | 1/- ResizeCompleted | 1/-"},
		"changes again meanwhile": {append(runs("8"),
			Event{Kind: Desired, Pod: sized("1")}, Event{Kind: Desired, Pod: sized("2")},
			Event{Kind: Resized, Pod: sized("1")}, Event{Kind: Resized, Pod: sized("2")}, Event{Kind: Settled},
		), "8/- | 8/- | 8/1 ask | 8/2 ask | 1/2 in progress ResizeStarted apply | " +
			"2/- in progress ResizeStarted apply | 2/- ResizeCompleted"},
		"is taken back": {append(runs("8"),
			Event{Kind: Desired, Pod: sized("16")}, deferred, Event{Kind: Desired, Pod: sized("8")},
		), "8/- | 8/- | 8/16 ask | 8/16 Deferred told | 8/- ask"},
		"waits": {append(runs("8"),
			Event{Kind: Desired, Pod: sized("16")}, deferred, deferred, reworded, infeasible,
			Event{Kind: Desired, Pod: sized("16")}, Event{Kind: Desired, Pod: sized("17")},
		), "8/- | 8/- | 8/16 ask | 8/16 Deferred told | 8/16 Deferred | 8/16 Deferred | 8/16 Infeasible told | " +
			"8/16 Infeasible | 8/17 ask"},
		"fails": {append(runs("8"),
			Event{Kind: Desired, Pod: sized("1")}, Event{Kind: Resized, Pod: sized("1")},
			Event{Kind: Settled, Why: Why{Message: "in use"}}, Event{Kind: Settled, Why: Why{Message: "in use"}},
			Event{Kind: Settled},
		), "8/- | 8/- | 8/1 ask | 1/- in progress ResizeStarted apply | 1/- in progress: in use ResizeError | " +
			"1/- in progress: in use | 1/- ResizeCompleted"},
		"before it was admitted": {[]Event{
			{Kind: Desired, Pod: sized("8")}, {Kind: Desired, Pod: sized("1")}, {Kind: Admitted, Pod: sized("1")},
		}, "8/- | 1/- | 1/-"},
		"after it was decided on": {[]Event{
			{Kind: Desired, Pod: sized("8")}, {Kind: Desired, Pod: sized("1")},
			{Kind: Admitted, Pod: sized("8")}, {Kind: Desired, Pod: sized("1")},
		}, "8/- | 1/- | 8/1 ask | 8/1"},
		"while the agent was away": {[]Event{
			{Kind: Desired, Pod: sized("1"), Runtime: away}, {Kind: Desired, Pod: sized("1"), Runtime: away},
			{Kind: Admitted, Pod: sized("8")}, {Kind: Desired, Pod: sized("1")},
		}, "8/1 | 8/1 | 8/1 ask | 8/1"},
		"halfway when the agent went away": {[]Event{
			{Kind: Desired, Pod: halfway, Runtime: away}, {Kind: Admitted, Pod: halfway}, {Kind: Settled},
		}, "8/- | 8/- in progress apply | 8/- ResizeCompleted"},
		"not told when the agent went away": {[]Event{
			{Kind: Desired, Pod: untold, Runtime: away}, {Kind: Admitted, Pod: untold}, {Kind: Settled},
		}, "8/- | 8/- in progress apply | 8/- ResizeCompleted"},
		"deleted while the agent was away": {[]Event{
			{Kind: Deleted, Pod: sized("1"), Runtime: Runtime{Recorded: true, Allocated: &before}},
		}, "8/1"},
		"allocated to one that ends": {append(runs("8"),
			Event{Kind: Desired, Pod: sized("1")}, Event{Kind: Deleted, Pod: sized("1")},
			Event{Kind: Resized, Pod: sized("1")}, Event{Kind: Settled}, infeasible,
		), "8/- | 8/- | 8/1 ask | 8/1 | 1/- | 1/- | 1/-"},
		"another life": {append(runs("8"),
			Event{Kind: Removed, Pod: sized("8")}, Event{Kind: Desired, Pod: sized("1")},
			Event{Kind: Gone}, Event{Kind: Released},
		), "8/- | 8/- | 8/- | 8/- | 8/- | 1/-"},
	} {
		t.Run(name, func(t *testing.T) {
			var r Record
			var got []string
			for _, e := range test.events {
				next, effects := Step(r, e)
				r = next
				got = append(got, toldOf(r))
				last := &got[len(got)-1]
				for _, f := range effects {
					switch f.Kind {
					case AskResize:
						*last += " ask"
					case ApplyResize:
						*last += " apply"
					case TellResize:
						if f.Why.Reason == "Deferred" || f.Why.Reason == "Infeasible" {
							*last += " told"
						} else {
							*last += " " + f.Why.Reason
						}
					case Submit, Run, Write:
						if cpus(f.Pod) != cpus(r.Pod) && r.Next == nil {
							t.Errorf("%s: %s with %s CPUs", e.Kind, f.Kind, cpus(f.Pod))
						}
					}
					if f.Kind == Write && r.Next == nil && (f.Wanted != r.Wanted || f.Resize != r.Resize) {
						t.Errorf("%s: written is %s, %+v", e.Kind, cpus(f.Wanted), f.Resize)
					}
				}
			}
			if text := strings.Join(got, " | "); text != test.want {
				t.Errorf("got  %s\nwant %s", text, test.want)
			}
		})
	}
}

func toldOf(r Record) string {
	out := fmt.Sprintf("%s/%s", cpus(r.Pod), cpus(r.Wanted))
	if why := r.Resize.Pending.Reason; why != "" {
		out += " " + why
	}
	if r.Resize.InProgress {
		out += " in progress"
	}
	if r.Resize.Error != "" {
		out += ": " + r.Resize.Error
	}
	return out
}
