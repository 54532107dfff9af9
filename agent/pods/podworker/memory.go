package podworker

import (
	"cmp"
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/numalet/numalet/agent/placement/resize"
	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/topology/podspec"
)

// memory holds what a worker knows and cannot observe. Losing it delays nothing for good, and
// repeats nothing that took effect.
type memory struct {
	// failures holds failed actions, which are not tried again before their time.
	failures map[key]failure
	// first holds, by container, the attempt from which crashes are counted.
	first map[string]uint32
	// attempts holds the next attempt of each container without a record.
	attempts map[string]uint32
	// made holds, by container, what the worker made recently; under "" the sandbox, also those
	// made before this worker.
	made map[string]creations
	// again holds the ids of containers that were stopped in order to be started again.
	again map[string]Again
	hooks hooks
	// deadline is the end of the current grace period; zero: there is none.
	deadline time.Time
	// tellBy is the time until which the pod's end waits for others to hear of it; zero: no wait.
	tellBy time.Time
	end    ending
	// completed: the pod was reported to have ended by itself, and others may hold its resources.
	// This stays, whatever its spec says later.
	completed bool
	// done is the last action, if it took effect.
	done Action
	// want is the desired state that the failures belong to.
	want Desired
}

// ending holds what was done at a pod's end.
type ending struct {
	// unstopped is the id of the last sandbox that was seen ready and not stopped since; empty:
	// there is none. A sandbox that died while no agent ran is not known to be unstopped.
	unstopped string
	// cleaned: CleanUp was carried out since something of the pod was last alive.
	cleaned bool
	// removed: RemovePod was carried out. If anything of the pod is left, it was not known, or the
	// runtime reports it wrongly.
	removed bool
	// stopping: a stop of all containers was begun.
	stopping bool
}

type key struct {
	kind      ActionKind
	container string
}

type failure struct {
	why   status.Reason
	retry time.Time
	// hastened: others know when it may succeed, as it lacks an object of the API server, or ends a pod
	// and waits for a pause to be over.
	hastened bool
}

// newMemory starts with the postStart hooks that an earlier run of the agent left pending.
func newMemory(pending map[string]uint32) *memory {
	return &memory{
		failures: map[key]failure{}, first: map[string]uint32{},
		attempts: map[string]uint32{}, made: map[string]creations{},
		again: map[string]Again{}, hooks: newHooks(pending),
	}
}

// learn records the desired and the observed state.
func (m *memory) learn(want Desired, observed cri.Pod, b BackOff) {
	if !equivalent(m.want, want) {
		m.retryAtOnce(func(failure) bool { return true })
		m.done = Action{}
	}
	m.want = want
	if alive(observed) {
		m.end.cleaned = false
	}
	if len(observed.Sandboxes) > 0 && observed.Sandboxes[0].Ready {
		m.end.unstopped = observed.Sandboxes[0].ID
	}
	m.learnMade("", "", observed.ReadAt, b)
	m.learnSandboxes(observed, b)
	byName := observed.Records()
	for c := range podspec.All(want.Pod) {
		hash, records := cri.ContainerHash(c), byName[c.Name]
		// A container that a resize starts anew is another one.
		m.learnMade(c.Name, hash+resize.DescribeContainer(c), observed.ReadAt, b)
		if len(records) == 0 {
			m.first[c.Name] = m.attempts[c.Name] // it begins to count anew
			continue
		}
		m.first[c.Name] = b.countFrom(m.first[c.Name], hash, records)
	}
}

// learnAttempts asks once for the next attempt of each container without a record.
func (m *memory) learnAttempts(pod *v1.Pod, observed cri.Pod,
	next func(*v1.Pod, string) uint32) {
	byName := observed.Records()
	for c := range podspec.All(pod) {
		if len(byName[c.Name]) > 0 {
			delete(m.attempts, c.Name)
		} else if _, asked := m.attempts[c.Name]; !asked && next != nil {
			m.attempts[c.Name] = next(pod, c.Name)
		}
	}
}

// learnMade begins to count anew if the last creation ran long, or the definition changed.
func (m *memory) learnMade(name, hash string, now time.Time, b BackOff) {
	made := m.made[name]
	if made.hash != hash {
		made = creations{hash: hash}
	}
	if now.Sub(made.last) > b.Reset {
		made.count = min(made.count, 1)
	}
	m.made[name] = made
}

// learnSandboxes records a sandbox that this worker did not make, or does not know that it made.
func (m *memory) learnSandboxes(observed cri.Pod, b BackOff) {
	made := m.made[""]
	if len(observed.Sandboxes) == 0 {
		return
	}
	at := observed.Sandboxes[0].CreatedAt
	if at.After(made.last) && !at.After(observed.ReadAt) {
		made.count, made.last = max(made.count, b.sandboxesInRow(observed)), at
		m.made[""] = made
	}
}

// equivalent reports whether what failed for a would also fail for b.
func equivalent(a, b Desired) bool {
	if a.Pod == nil || (a.Stop == nil) != (b.Stop == nil) {
		return false
	}
	if a.Stop != nil && a.Stop.Grace != b.Stop.Grace {
		return false
	}
	return a.Pod == b.Pod || equality.Semantic.DeepEqual(a.Pod.Spec, b.Pod.Spec)
}

// succeeded records that an action took effect.
func (m *memory) succeeded(a Action, now time.Time) {
	delete(m.failures, a.key())
	m.done = a
	switch a.Kind {
	case UpdateVolumes:
		m.done = Action{} // nothing is seen of it in the runtime
	case StopSandboxes:
		if slices.Contains(a.IDs, m.end.unstopped) {
			m.end.unstopped = ""
		}
	case CleanUp:
		m.end.cleaned = true
	case RemovePod:
		m.end.removed = true
	case PostStart:
		m.done = Action{} // nothing is seen of it in the runtime
		m.hooks.ended(a.Container, nil)
	case CreateSandbox, StartContainer:
		made := m.made[a.Container]
		made.count, made.last = made.count+1, now
		m.made[a.Container] = made
	}
}

// started records that an action is about to be carried out.
func (m *memory) started(a Action) {
	m.hooks.started(m.want.Pod, a)
	switch {
	case a.Kind == StartContainer:
		delete(m.failures, key{PostStart, a.Container}) // that was another attempt's
	case a.Kind == StopContainers && m.want.Stop != nil:
		m.end.stopping = true
	}
	if a.Again != NotAgain {
		for _, id := range a.IDs {
			m.again[id] = a.Again
		}
	}
}

// failed records that an action took no effect, or only in part.
func (m *memory) failed(a Action, err error, retry time.Time) {
	f := failure{
		why:   status.Reason{Reason: defaultReason(a.Kind), Message: err.Error()},
		retry: retry,
	}
	if start, ok := errors.AsType[*cri.StartError](err); ok {
		f.why = status.Reason{Reason: start.Reason, Message: start.Message}
		if !start.RetryAt.IsZero() {
			f.retry = start.RetryAt
		}
	}
	if at := cri.PausedUntil(err); !at.IsZero() {
		f.retry = await.Earlier(f.retry, at)
		f.hastened = a.Kind == CleanUp || a.Kind == RemovePod
	}
	if _, lacks := errors.AsType[*cri.ObjectError](err); lacks {
		f.hastened = true
	}
	m.failures[a.key()] = f
	m.done = Action{}
	if a.Kind == PostStart {
		m.hooks.ended(a.Container, err)
	}
}

// retryObjects has actions tried again that failed for lack of an object.
func (m *memory) retryObjects() {
	m.retryAtOnce(func(f failure) bool { return f.hastened })
}

// retryAtOnce has such actions tried again now. Their failures are reported until they succeed, so
// that the status does not flip back and forth.
func (m *memory) retryAtOnce(such func(failure) bool) {
	for key, f := range m.failures {
		if such(f) {
			f.retry = time.Time{}
			m.failures[key] = f
		}
	}
}

// waiting returns the containers that will be started again regardless of their exit and restart
// policy, and those that run but do not count as running yet.
func (m *memory) waiting(observed cri.Pod) map[string]status.Reason {
	out := map[string]status.Reason{}
	newest := map[string]string{} // ids
	for _, c := range observed.Containers {
		if _, newer := newest[c.Name]; !newer {
			newest[c.Name] = c.ID
		}
		if m.again[c.ID] != NotAgain && c.ID == newest[c.Name] {
			out[c.Name] = status.Reason{}
		}
	}
	m.hooks.awaited(observed, out)
	return out
}

// ReasonUnprepare is the reason of events, and of the status, of a pod that cannot end since its
// resource claims cannot be unprepared. The kubelet has none.
const ReasonUnprepare = "FailedUnprepareDynamicResources"

func defaultReason(kind ActionKind) string {
	reasons := map[ActionKind]string{
		CreateSandbox:  cri.ReasonCreatePodSandbox,
		StartContainer: cri.ReasonRunContainer,
		PostStart:      cri.ReasonPostStartHook,
		StopContainers: cri.ReasonKillContainer,
		StopSandboxes:  cri.ReasonKillPodSandbox,
		ReleaseClaims:  ReasonUnprepare,
	}
	return cmp.Or(reasons[kind], string(kind)+"Error")
}
