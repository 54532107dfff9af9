package fit_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/admission"
	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/report"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/fit"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

// running has pods of the API server run on a node, and asks about them.
type running struct {
	*testing.T
	queue *admission.Queue
	// said is the last outcome of each pod.
	said map[string]report.Result
}

func onANode(t *testing.T, test func(r running)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := running{T: t, said: map[string]report.Result{}}
		queue, stop := liveTelling(t, dir, devicemanager.Inventory{}, func(one report.Result) { r.said[one.Pod.Name] = one })
		defer stop()
		r.queue = queue
		test(r)
	})
}

func ofAPI(name string, containers ...string) *v1.Pod {
	p := pod(name, containers...)
	p.Annotations = map[string]string{podspec.AnnotationSource: podspec.APISource}
	return p
}

func (r running) runs(name string, containers ...string) {
	r.Helper()
	r.queue.Submit(ofAPI(name, containers...), false)
	synctest.Wait()
	if r.said[name].Outcome != decide.Admit {
		r.Fatalf("%s: %+v", name, r.said[name])
	}
}

// asks asks about pods under other UIDs, as numalet fit does.
func (r running) asks(q fit.Question) fit.Answer {
	r.Helper()
	s, standing, err := r.queue.Standing(r.Context(), q.Pods)
	if err != nil {
		r.Fatal(err)
	}
	q.Standing = standing
	return place(r.T, s, q)
}

func asked(p *v1.Pod) *v1.Pod {
	p = p.DeepCopy()
	p.UID, p.Annotations = "asked-"+p.UID, nil
	return p
}

// What is foretold of a resize happens when the pod's source asks for it.
func TestResizesAreForetold(t *testing.T) {
	for name, test := range map[string]struct {
		ask   string
		ends  bool // pod b has begun to end
		fits  bool
		words []string
	}{
		"more CPUs": {"main cpu=3", false, true, []string{"Pod default/a runs here: its resize would be done\n",
			"\nIt asks for\n  main: requests cpu 3 instead of 2; limits cpu 3 instead of 2\n",
			"\nWhat it would have\n  main: CPUs 1-3, all on NUMA node 0\n"}},
		"fewer CPUs": {"main cpu=1", false, true, []string{"would be done\n", "  main: CPUs 1, all on NUMA node 0\n"}},
		"what it has": {"main cpu=2", false, true, []string{"Pod default/a runs here, and has what it asks for\n",
			"  main: CPUs 1-2, all"}},
		"no room": {"main cpu=4", false, false, []string{"Pod default/a runs here: its resize would be deferred",
			"\nNo pod that is ending leaves it enough room.\n"}},
		"room when others are gone": {"main cpu=4", true, false, []string{"would be deferred",
			"\nIt has room once the pods are gone that are ending.\n"}},
		"more than there are": {"main cpu=9", true, false, []string{
			"its resize would be infeasible, exclusive_resources_unavailable\n  not enough cpus available"}},
	} {
		t.Run(name, func(t *testing.T) {
			onANode(t, func(r running) {
				r.runs("a", "main cpu=2")
				r.runs("b", "main cpu=4")
				if test.ends {
					r.queue.Leaving("b", false)
				}
				wanted := ofAPI("a", test.ask)
				answer := r.asks(fit.Question{Pods: []*v1.Pod{asked(wanted)}})
				for _, words := range test.words {
					if !strings.Contains(answer.Text(), words) {
						r.Errorf("not said %q:\n%s", words, answer.Text())
					}
				}
				if answer.Fits != test.fits {
					r.Errorf("fits: %t", answer.Fits)
				}
				if name == "what it has" {
					return
				}
				r.queue.Resize(wanted)
				synctest.Wait()
				foretold, came := answer.Pods[0].Record, r.said["a"]
				if foretold.Outcome != string(came.Outcome) || foretold.Reason != came.Reason || foretold.Message != came.Message {
					r.Errorf("foretold %+v, came %+v", foretold.Verdict, came)
				}
			})
		})
	}
}

// Pods that would make way for a critical one are named.
func TestPodsMakeWayForResizes(t *testing.T) {
	s := offline(t, devicemanager.Inventory{}, allocation.State{})
	s.ResizePreempts = true
	demand := func(name, memory string, priority int32) decide.Demand {
		return decide.DemandOf(podtest.New(name, podtest.Containers("main memory="+memory), podtest.Priority(priority)),
			s.Hardware.CPUs, s.Rules)
	}
	const critical = podspec.CriticalPriority
	has, wants := demand("critical", "8Gi", critical), demand("critical", "24Gi", critical)
	for _, d := range []decide.Demand{has, demand("other", "16Gi", 0)} {
		s.Ledger = s.Ledger.With(d.Pod.UID, allocation.Entry{Name: "default/" + d.Pod.Name, Requests: d.Requests, Rank: d.Rank})
	}
	a := place(t, s, fit.Question{Pods: []*v1.Pod{wants.Pod}, Standing: map[types.UID]decide.Standing{
		wants.Pod.UID: {Request: decide.Request{Demand: has, In: has.Pod.UID}, Wants: wants}}})
	for _, words := range []string{": its resize would be deferred, OutOfmemory\n  Node didn't have enough resource: memory",
		"\nOther pods would make way for it, and it has room once they are gone: default/other.\n"} {
		if !strings.Contains(a.Text(), words) {
			t.Errorf("not said %q:\n%s", words, a.Text())
		}
	}
}

// What is asked about later is beside what was resized before. Copies are other pods.
func TestResizesBesideOthers(t *testing.T) {
	onANode(t, func(r running) {
		r.runs("a", "main cpu=2")
		grown, next := asked(pod("a", "main cpu=4")), pod("next", "main cpu=4")
		if a := r.asks(fit.Question{Pods: []*v1.Pod{grown, next}}); a.Fits || !strings.Contains(a.Text(), "1 of 2 pods fit") {
			r.Errorf("beside what grows: %s", a.Text())
		}
		if a := r.asks(fit.Question{Pods: []*v1.Pod{asked(pod("a", "main cpu=1")), next}}); !a.Fits {
			r.Errorf("beside what shrinks: %s", a.Text())
		}
		if a := r.asks(fit.Question{Pods: []*v1.Pod{grown}, Copies: 9, Most: true}); a.Copies != 1 || a.Pods[0].Resize != nil {
			r.Errorf("copies: %s", a.Text())
		}
	})
}

// What an API server would refuse is noted, and an answer can be read again.
func TestDoubtsOfResizes(t *testing.T) {
	onANode(t, func(r running) {
		r.runs("a", "main cpu=2")
		other := asked(podtest.New("a", podtest.Containers("main cpu=1..2", "more cpu=1")))
		p := r.asks(fit.Question{Pods: []*v1.Pod{other}}).Pods[0]
		for _, note := range []string{"the pod that runs has no container more;",
			"would change from Guaranteed to Burstable"} {
			if !strings.Contains(p.Text, note) {
				r.Errorf("not noted %q:\n%s", note, p.Text)
			}
		}
		text, err := json.Marshal(p)
		var back fit.Pod
		if err == nil {
			err = json.Unmarshal(text, &back)
		}
		if err != nil || back.Resize == nil || back.Resize.Outcome != "Done" || back.Record.Outcome != "Resized" {
			r.Errorf("%s, %v", text, err)
		}
	})
}

// Pods that wait, end or are static, and those of other names, are no pods that run.
func TestWhatIsNoResize(t *testing.T) {
	onANode(t, func(r running) {
		r.runs("ends", "main cpu=1")
		r.queue.Leaving("ends", false)
		static := pod("static", "main cpu=1")
		podtest.Source("file")(static)
		r.queue.Submit(static, false)
		synctest.Wait()
		for _, name := range []string{"ends", "static", "other"} {
			a := r.asks(fit.Question{Pods: []*v1.Pod{asked(pod(name, "main cpu=2"))}})
			if a.Pods[0].Resize != nil || !a.Fits {
				r.Errorf("%s: %s", name, a.Text())
			}
		}
	})
}
