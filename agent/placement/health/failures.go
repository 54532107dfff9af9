package health

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/deviceplugin/failure"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/internal/metric"
	"github.com/numalet/numalet/topology/podspec"
)

const (
	// failuresPeriod is the longest time between two looks, failuresRest the least, and failuresRetry
	// that after what was to be done could not be written.
	failuresPeriod, failuresRest, failuresRetry = time.Minute, 50 * time.Millisecond, 10 * time.Second
)

// FailuresConfig connects Failures to the node. All of it is required but what Config says.
type FailuresConfig struct {
	// Config says what pods hold and how that is. Its Refresh has a pod's worker look, which stops the
	// containers that the book condemns.
	Config
	Book *FailureBook
	// Known reports whether a pod is, or may be, among the node's.
	Known func(types.UID) bool
	// End ends a pod, which has failed then with failure.ReasonFailed; it must not block. Grace is how
	// long a pod has to exit by its own spec.
	End   func(pod *v1.Pod, message string, grace time.Duration)
	Grace func(*v1.Pod) time.Duration
	// Changed has a value when health or what pods hold may have changed.
	Changed  <-chan struct{}
	Registry metrics.KubeRegistry
}

// Failures has done what the rules say about pods whose devices fail.
type Failures struct {
	cfg   FailuresConfig
	acts  *metrics.CounterVec
	wrong complaint.Complaint[string] // with the book's file
}

// NewFailures returns what has not looked yet.
func NewFailures(cfg FailuresConfig) (*Failures, error) {
	var s metric.Set
	f := &Failures{cfg: cfg, acts: s.Counters("numalet_device_failures_total", "Number of times that "+
		"something was done since a device that a container holds stayed unhealthy.", "action")}
	return f, s.Register(cfg.Registry)
}

// Run looks and acts until ctx ends.
func (f *Failures) Run(ctx context.Context) error {
	for {
		next := f.look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-f.cfg.Changed:
		case <-await.At(next):
		}
		if !await.For(ctx, failuresRest) {
			return nil
		}
	}
}

// scene holds what a look found.
type scene struct {
	from Sources
	in   failure.Input
	pods map[types.UID]*v1.Pod
	runs map[types.UID]map[string]failure.Container
}

// look takes a step, and returns when the next one is due at the latest.
func (f *Failures) look(ctx context.Context) time.Time {
	over, was := f.cfg.Book.ended(), *f.cfg.Book.state.Load()
	s := f.see(was)
	s.in.Known = func(uid types.UID) bool { return !over.Has(uid) && f.cfg.Known(uid) }
	next, effects := was.Step(s.in, f.cfg.Book.rules)
	for i := range effects {
		f.prepare(&next, &effects[i], s)
	}
	for _, e := range effects { // what is going to be done is told before it is done
		if e.Kind != failure.Acted {
			f.tell(e, s)
		}
	}
	acts := slices.ContainsFunc(effects, func(e failure.Effect) bool { return e.Kind == failure.Acted })
	var err error
	if !reflect.DeepEqual(next.Acts, was.Acts) {
		err = f.cfg.Book.record.Set(next.Acts)
	}
	if f.wrong.Begins(complaint.Of(err)) {
		klog.FromContext(ctx).Error(err, "What is to be done about failed devices waits: it cannot be written")
	}
	if err != nil && acts {
		return s.in.Now.Add(failuresRetry)
	}
	f.cfg.Book.state.Store(&next) // an error kept more on the disk than is needed
	f.cfg.Book.forget(over)
	for _, e := range effects {
		if e.Kind == failure.Acted {
			f.act(ctx, e, s)
		}
	}
	return await.Earlier(next.Wake, s.in.Now.Add(failuresPeriod))
}

// see returns the present devices and containers.
func (f *Failures) see(was failure.State) scene {
	s := scene{from: Sources{f.cfg.Inventory(), f.cfg.Drivers}, pods: map[types.UID]*v1.Pod{},
		runs: map[types.UID]map[string]failure.Container{},
		in:   failure.Input{Now: time.Now()}}
	for _, one := range f.cfg.holding() {
		now := f.cfg.Status(one.UID)
		if podspec.Ended(now.Phase) {
			continue
		}
		s.pods[one.UID], s.runs[one.UID] = one.spec, runningIn(now)
		p := failure.Pod{UID: one.UID, Leaving: one.spec.DeletionTimestamp != nil, Containers: s.runs[one.UID]}
		if by := metav1.GetControllerOf(one.spec); by != nil {
			p.Workload = by.UID
		}
		statuses := podspec.ByContainer(&now)
		seen := map[failure.Device]bool{}
		one.each(s.from, func(d failure.Held) {
			if seen[d.Device] {
				return
			}
			seen[d.Device] = true
			d.Exempt = d.Exempt || hasEnded(one.spec, d.Container, statuses[d.Container])
			if d.Health == v1.ResourceHealthStatusUnhealthy && s.from.awaitsReason(d.Device) &&
				!was.Suspects(d.Device) {
				d.Health = v1.ResourceHealthStatusUnknown // until the reason is known, in a moment
			}
			p.Devices = append(p.Devices, d)
		})
		if len(p.Devices) > 0 {
			s.in.Pods = append(s.in.Pods, p)
		}
	}
	slices.SortFunc(s.in.Pods, func(a, b failure.Pod) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return s
}

// runningIn returns the containers of a status that run.
func runningIn(s v1.PodStatus) map[string]failure.Container {
	out := map[string]failure.Container{}
	for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses) {
		if c.State.Running != nil {
			out[c.Name] = failure.Container{ID: podspec.RuntimeID(c.ContainerID),
				Started: c.State.Running.StartedAt.Time}
		}
	}
	return out
}

// hasEnded reports whether a container has ended and is not started again.
func hasEnded(pod *v1.Pod, name string, s *v1.ContainerStatus) bool {
	if s == nil || s.State.Terminated == nil {
		return false
	}
	c, kind := podspec.Find(pod, name)
	switch {
	case c == nil:
		return true
	case kind == podspec.Regular:
		return !podspec.Restarts(pod, c, s.State.Terminated.ExitCode)
	default:
		return kind == podspec.Init && s.State.Terminated.ExitCode == 0
	}
}

// prepare completes an act.
func (f *Failures) prepare(next *failure.State, e *failure.Effect, s scene) {
	if e.Kind != failure.Acted || e.Act.Action != failure.FailPod {
		return
	}
	e.Act.Message = e.Failed(f.facts(*e, s))
	e.Act.Until = s.in.Now.Add(f.cfg.Grace(s.pods[e.Pod]))
	for i := range next.Acts {
		if next.Acts[i].Pod == e.Pod && next.Acts[i].Action == failure.FailPod {
			next.Acts[i] = e.Act
		}
	}
}

func (f *Failures) facts(e failure.Effect, s scene) (out failure.Facts) {
	first := e.Devices[0]
	group := slices.DeleteFunc(slices.Clone(e.Devices), func(d failure.Device) bool {
		return d.Resource != first.Resource || d.Driver != first.Driver
	})
	c := changeOf(changeKey{first.Pod, first.Container, first.Resource, first.Driver,
		v1.ResourceHealthStatusUnhealthy}, group, s.from)
	out.Why = "says " + c.teller() + c.why
	if c, kind := podspec.Find(s.pods[e.Pod], e.Container); c != nil && kind == podspec.Regular {
		out.Never = podspec.NeverRestarts(s.pods[e.Pod], c)
	}
	if other, ok := f.cfg.Pod(e.Other); ok && e.Other != "" {
		out.Other = klog.KObj(other).String()
	}
	_, out.Running = s.runs[e.Pod][e.Container]
	return out
}

func (f *Failures) tell(e failure.Effect, s scene) {
	kind, reason, message := e.Event(f.facts(e, s))
	f.cfg.Tell(s.pods[e.Pod], kind, reason, message)
}

// act does what the book has.
func (f *Failures) act(ctx context.Context, e failure.Effect, s scene) {
	pod := s.pods[e.Pod]
	klog.FromContext(ctx).Info("A device has failed", "pod", klog.KObj(pod), "container", e.Container,
		"devices", e.Devices, "action", e.Act.Action)
	f.acts.WithLabelValues(string(e.Act.Action)).Inc()
	f.tell(e, s)
	switch e.Act.Action {
	case failure.FailPod:
		f.cfg.End(pod, e.Act.Message, f.cfg.Grace(pod))
	case failure.RestartContainer:
		f.cfg.Refresh(e.Pod)
	case failure.Event, failure.None:
	}
}
