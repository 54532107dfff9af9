package podworker

import (
	"cmp"
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/numalet/numalet/agent/status"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// memory is what a worker knows that cannot be observed. Losing it delays nothing for good and
// repeats nothing that took effect.
type memory struct {
	// failures are actions that failed and are not tried again before their time.
	failures map[key]failure
	// first has, by container, the attempt from which crashes are counted.
	first map[string]uint32
	// attempts has, by container of which there is no record, which attempt is next.
	attempts map[string]uint32
	// made has, by container, what the worker made of late; of the sandbox, "", also what was made
	// before.
	made map[string]creations
	// again has, by id, containers that were stopped to be started again.
	again map[string]Again
	hooks hooks
	// deadline is the end of the grace period under way; zero: none is.
	deadline time.Time
	end      ending
	// completed: the pod was reported to have ended by itself, and what it held may be another's:
	// it stays so whatever its spec says from then on.
	completed bool
	// done is the last action, if it took effect.
	done Action
	// want is what the failures are about.
	want Desired
}

// ending is what was done at a pod's end.
type ending struct {
	// unstopped is the id of the sandbox that was seen ready last and that nobody has stopped since;
	// empty: there is none. One that died while no agent ran is not known to be unstopped.
	unstopped string
	// cleaned: CleanUp has been done since something of the pod was last alive.
	cleaned bool
	// removed: RemovePod has been done. What is left of the pod then was not known, or is not as
	// the runtime says.
	removed bool
}

type key struct {
	kind      ActionKind
	container string
}

type failure struct {
	why    status.Reason
	retry  time.Time
	object bool // it lacks an object of the API server
}

// newMemory remembers of postStart hooks what an earlier run of the agent left.
func newMemory(pending map[string]uint32) *memory {
	return &memory{
		failures: map[key]failure{}, first: map[string]uint32{},
		attempts: map[string]uint32{}, made: map[string]creations{}, again: map[string]Again{}, hooks: newHooks(pending),
	}
}

// learn takes in what is desired and observed now.
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
		m.learnMade(c.Name, hash, observed.ReadAt, b)
		if len(records) == 0 {
			m.first[c.Name] = m.attempts[c.Name] // it begins to count anew
			continue
		}
		m.first[c.Name] = b.countFrom(m.first[c.Name], hash, records)
	}
}

// learnAttempts asks for the next attempt of containers of which there is no record, once.
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

// learnMade begins to count anew when the last of a thing has lasted, or its definition is another.
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

// learnSandboxes takes in a sandbox that this worker did not make, or did not know that it did.
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

// succeeded takes in that an action was done.
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

// started takes in that an action is about to be done.
func (m *memory) started(a Action) {
	m.hooks.started(m.want.Pod, a)
	if a.Kind == StartContainer {
		delete(m.failures, key{PostStart, a.Container}) // that was another attempt's
	}
	if a.Again != NotAgain {
		for _, id := range a.IDs {
			m.again[id] = a.Again
		}
	}
}

// failed takes in that an action was not done, or only in part.
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
	_, f.object = errors.AsType[*cri.ObjectError](err)
	m.failures[a.key()] = f
	m.done = Action{}
	if a.Kind == PostStart {
		m.hooks.ended(a.Container, err)
	}
}

// retryObjects has what failed for want of an object tried again.
func (m *memory) retryObjects() {
	m.retryAtOnce(func(f failure) bool { return f.object })
}

// retryAtOnce has such actions tried again now. Why they failed is told until one succeeds, so that
// nobody is told of a way forth and back.
func (m *memory) retryAtOnce(such func(failure) bool) {
	for key, f := range m.failures {
		if such(f) {
			f.retry = time.Time{}
			m.failures[key] = f
		}
	}
}

// waiting are the containers that will be started again although their exit and the restart
// policy say otherwise, and those that run and do not count as running yet.
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

func defaultReason(kind ActionKind) string {
	reasons := map[ActionKind]string{
		CreateSandbox:  cri.ReasonCreatePodSandbox,
		StartContainer: cri.ReasonRunContainer,
		PostStart:      cri.ReasonPostStartHook,
		StopContainers: cri.ReasonKillContainer,
		StopSandboxes:  cri.ReasonKillPodSandbox,
	}
	return cmp.Or(reasons[kind], string(kind)+"Error")
}
