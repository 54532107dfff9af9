package metrics

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/agent/pods/pod"
	"github.com/numalet/numalet/agent/pods/syncloop"
	"github.com/numalet/numalet/internal/podtest"
)

// resizedPod is a pod whose record takes steps that are counted.
type resizedPod struct {
	*testing.T
	m        *Metrics
	registry metrics.KubeRegistry
	record   pod.Record
}

func newResizedPod(t *testing.T, p *v1.Pod) *resizedPod {
	z := &resizedPod{T: t}
	z.m, z.registry = fresh(t)
	z.feed(pod.Event{Kind: pod.Desired, Pod: p})
	z.feed(pod.Event{Kind: pod.Admitted, Pod: sizedPod("main cpu=1 memory=1Gi")})
	return z
}

func sizedPod(containers ...string) *v1.Pod {
	return podtest.New("p", podtest.Containers(containers...), podtest.Priority(1))
}

func (z *resizedPod) feed(e pod.Event) {
	was := z.record
	z.record, _ = pod.Step(was, e)
	z.m.Stepped(was, z.record, e)
	time.Sleep(time.Second)
}

// asks has the pod's source ask for these containers.
func (z *resizedPod) asks(containers ...string) {
	z.feed(pod.Event{Kind: pod.Desired, Pod: sizedPod(containers...)})
}

func (z *resizedPod) refused(reason string) {
	z.feed(pod.Event{Kind: pod.NotResized, Why: pod.Why{Reason: reason}})
}

// granted has the pod allocated what it asks for.
func (z *resizedPod) granted(trigger string) {
	z.feed(pod.Event{Kind: pod.Resized, Pod: z.record.Shown(), Trigger: trigger})
}

func (z *resizedPod) settled(err error) { z.feed(syncloop.Settled("p", err).Event) }

// counted returns the series of a metric, in order: its labels, the count, and of a histogram the sum.
func (z *resizedPod) counted(name string) string {
	z.Helper()
	families, err := z.registry.Gather()
	if err != nil {
		z.Fatal(err)
	}
	var out []string
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, one := range family.GetMetric() {
			var words []string
			for _, label := range one.GetLabel() {
				words = append(words, label.GetValue())
			}
			if h := one.GetHistogram(); h != nil {
				words = append(words, fmt.Sprint(h.GetSampleCount(), " in ", h.GetSampleSum()))
			} else {
				words = append(words, fmt.Sprint(one.GetCounter().GetValue()))
			}
			out = append(out, strings.Join(words, " "))
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

const (
	requestedResizes = "kubelet_container_requested_resizes_total"
	acceptedResizes  = "kubelet_pod_deferred_accepted_resizes_total"
	deferredSeconds  = "kubelet_pod_deferred_resize_duration_seconds"
	resizeTime       = "kubelet_pod_resize_duration_milliseconds"
)

func (z *resizedPod) expect(what string, want map[string]string) {
	z.Helper()
	for _, name := range []string{requestedResizes, acceptedResizes, deferredSeconds, resizeTime} {
		if got := z.counted(name); got != want[name] {
			z.Errorf("%s: %s is %q, want %q", what, name, got, want[name])
		}
	}
}

// How deferred resizes end, and how long pods take to get what they were allocated. Each step takes a second.
func TestHistoryOfResizes(t *testing.T) {
	for name, test := range map[string]struct {
		play func(z *resizedPod)
		want map[string]string
	}{
		"granted at once": {func(z *resizedPod) {
			z.granted("pod_updated")
			z.settled(nil)
		}, map[string]string{resizeTime: "true 1 in 1000"}},
		"errors": {func(z *resizedPod) {
			z.granted("pod_updated")
			for _, text := range []string{"a", "a", "b"} {
				z.settled(errors.New(text))
			}
			z.settled(nil)
		}, map[string]string{resizeTime: "false 2 in 4000, true 1 in 4000"}},
		"room later": {func(z *resizedPod) {
			z.refused(v1.PodReasonDeferred)
			z.refused(v1.PodReasonDeferred)
			z.granted("pod_terminated")
			z.granted("pod_terminated") // there is nothing more to allocate
		}, map[string]string{acceptedResizes: "pod_terminated 1", deferredSeconds: "medium accepted 1 in 2"}},
		"less is asked for": {func(z *resizedPod) {
			z.refused(v1.PodReasonDeferred)
			z.asks("main cpu=3 memory=1Gi")
			z.granted("pod_updated")
		}, map[string]string{acceptedResizes: "pod_updated 1", deferredSeconds: "medium accepted 1 in 2"}},
		"taken back": {func(z *resizedPod) {
			z.refused(v1.PodReasonDeferred)
			z.asks("main cpu=1 memory=1Gi")
		}, map[string]string{deferredSeconds: "medium reverted 1 in 1"}},
		"infeasible": {func(z *resizedPod) {
			z.refused(v1.PodReasonDeferred)
			z.refused(v1.PodReasonInfeasible)
			z.asks("main cpu=1 memory=1Gi")
		}, nil},
		"deleted": {func(z *resizedPod) {
			z.refused(v1.PodReasonDeferred)
			z.feed(pod.Event{Kind: pod.Deleted, Pod: z.record.Shown()})
			z.feed(pod.Event{Kind: pod.Ended})
			z.feed(pod.Event{Kind: pod.Removed, Pod: z.record.Shown()})
		}, map[string]string{deferredSeconds: "medium terminated 1 in 2"}},
		"ended while it is resized": {func(z *resizedPod) {
			z.granted("pod_updated")
			z.feed(pod.Event{Kind: pod.Ended})
			z.settled(nil)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				z := newResizedPod(t, sizedPod("main cpu=1 memory=1Gi"))
				z.asks("main cpu=4 memory=1Gi")
				test.play(z)
				if test.want == nil {
					test.want = map[string]string{}
				}
				test.want[requestedResizes] = z.counted(requestedResizes)
				z.expect(name, test.want)
			})
		})
	}
}

// What the API server has of a resize from before the agent began counts on.
func TestHistoryOfResizesBeforeARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sizedPod("main cpu=4 memory=1Gi")
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizePending, Reason: v1.PodReasonDeferred,
			LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Minute))}}
		z := newResizedPod(t, p)
		z.granted("pod_updated")
		z.expect("after a restart", map[string]string{
			acceptedResizes: "pod_updated 1", deferredSeconds: "medium accepted 1 in 62"})
	})
}

// Each amount that a container asks for anew is counted, of a pod that was admitted.
func TestRequestedResizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newResizedPod(t, sizedPod("main cpu=1 memory=1Gi"))
		z.asks("main cpu=2..3 memory=512Mi..1Gi")
		z.asks("main cpu=2..3 memory=512Mi..1Gi")
		z.asks("main cpu=2..4")
		z.asks("main cpu=2..4 memory=1Gi")
		z.expect("asked", map[string]string{requestedResizes: "add limits memory 1, add requests memory 1, " +
			"decrease requests memory 1, increase limits cpu 2, increase requests cpu 1, " +
			"remove limits memory 1, remove requests memory 1"})

		waiting, _ := pod.Step(pod.Record{}, pod.Event{Kind: pod.Desired, Pod: sizedPod("main cpu=1")})
		asks := pod.Event{Kind: pod.Desired, Pod: sizedPod("main cpu=5")}
		next, _ := pod.Step(waiting, asks)
		before := z.counted(requestedResizes)
		if z.m.Stepped(waiting, next, asks); z.counted(requestedResizes) != before {
			t.Errorf("a pod that waits: %s", z.counted(requestedResizes))
		}
	})
}
