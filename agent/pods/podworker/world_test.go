package podworker

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/resize"
	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// oomKilled stands for the exit code 0 of a container of which the kernel killed a process.
const oomKilled = -1

// run is what one attempt at running a container does.
type run struct {
	lasts time.Duration // 0: for ever
	code  int32
}

// machine is a container runtime in memory that checks what is asked of it. Its clock is the
// now that it is given.
type machine struct {
	now  time.Time
	pod  *v1.Pod
	seen cri.Pod
	ids  int
	// programs has, by container, what its attempts do; the last stands for all that follow.
	programs map[string][]run
	ends     map[string]time.Time // by container id
	codes    map[string]int32
	// stopping is how long a container takes to obey a stop, obeys its exit code then.
	stopping map[string]time.Duration
	obeys    int32
	// hook is what postStart hooks come to.
	hook    error
	cleaned bool
	// holds: drivers have devices prepared for the pod, from its first sandbox on if it uses claims.
	uses, holds bool
	// next has, by container, the attempt after all that were made.
	next map[string]uint32
	// noAddress: a new sandbox gets none.
	noAddress bool
	broken    []string // what was asked and should not have been
}

func newMachine(pod *v1.Pod) *machine {
	return &machine{
		now: epoch, pod: pod, seen: cri.Pod{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name},
		programs: map[string][]run{}, ends: map[string]time.Time{}, codes: map[string]int32{},
		stopping: map[string]time.Duration{}, obeys: 143, next: map[string]uint32{},
	}
}

// tick lets containers exit whose time has come, and gives the time of the next exit.
func (m *machine) tick() time.Time {
	var next time.Time
	for i := range m.seen.Containers {
		c := &m.seen.Containers[i]
		end, ends := m.ends[c.ID]
		if c.State != cri.ContainerRunning || !ends {
			continue
		}
		if !end.After(m.now) {
			m.exit(c, m.codes[c.ID], end)
		} else if next.IsZero() || end.Before(next) {
			next = end
		}
	}
	return next
}

func (m *machine) exit(c *cri.Container, code int32, at time.Time) {
	c.State, c.Exit.Code, c.Exit.At = cri.ContainerExited, code, at
	switch code {
	case oomKilled:
		c.Exit.Code, c.Exit.Reason = 0, "OOMKilled"
	case 0:
		c.Exit.Reason = "Completed"
	default:
		c.Exit.Reason = "Error"
	}
}

func (m *machine) observe() cri.Pod {
	m.tick()
	out := m.seen
	out.ReadAt = m.now
	out.Sandboxes = slices.Clone(m.seen.Sandboxes)
	out.Containers = slices.Clone(m.seen.Containers)
	return out
}

func (m *machine) do(a Action) error {
	m.tick()
	switch a.Kind {
	case CreateSandbox:
		return m.createSandbox(a.Attempt)
	case StartContainer:
		if err := m.create(a); err != nil {
			return err
		}
		m.start(&m.seen.Containers[0])
	case PostStart:
		c, _ := m.seen.Container(a.Container)
		m.require(c.ID == a.IDs[0] && c.State == cri.ContainerRunning, "hook of %s", a.Container)
		return m.hook
	case UpdateVolumes:
		m.require(alive(m.seen), "updated volumes of a pod that does not run")
	case StopContainers:
		m.stop(a)
	case StopSandboxes:
		m.eachSandbox(func(s *cri.Sandbox) {
			s.Ready = s.Ready && !slices.Contains(a.IDs, s.ID)
		})
	case RemoveContainers:
		m.remove(a.IDs)
	case RemoveSandboxes:
		m.removeSandboxes(a.IDs)
	case ReleaseClaims:
		m.require(!alive(m.seen), "released the claims of a pod that is alive")
		m.require(m.holds, "released claims of a pod that holds none")
		m.holds = false
	case CleanUp:
		m.require(!m.holds, "cleaned up before the claims were released")
		m.require(!alive(m.seen), "cleaned up a pod that is alive")
		m.cleaned = true
	case RemovePod:
		m.require(m.cleaned, "removed a pod that was not cleaned up")
		m.seen.Sandboxes, m.seen.Containers = nil, nil
	default:
		return fmt.Errorf("unknown action %v", a)
	}
	return nil
}

func (m *machine) createSandbox(attempt uint32) error {
	m.require(!alive(m.seen), "created a sandbox beside one that is alive")
	m.cleaned, m.holds = false, m.uses
	m.ids++
	s := cri.Sandbox{ID: fmt.Sprintf("s%d", m.ids), Attempt: attempt, Ready: true,
		HostNetwork: m.pod.Spec.HostNetwork, IPs: []string{"10.0.0.1"}, CreatedAt: m.now}
	if m.noAddress {
		s.IPs = nil
	}
	m.eachSandbox(func(old *cri.Sandbox) {
		m.require(old.Attempt < attempt, "sandbox attempt %d exists", attempt)
	})
	m.seen.Sandboxes = slices.Insert(m.seen.Sandboxes, 0, s)
	return nil
}

// create makes a container that has not started: what a crash in the middle leaves.
func (m *machine) create(a Action) error {
	if len(m.seen.Sandboxes) == 0 || !m.seen.Sandboxes[0].Ready {
		return errors.New("no sandbox")
	}
	for _, c := range m.seen.Records()[a.Container] {
		m.require(!maybeRunning(c), "%s runs already", a.Container)
		m.require(c.Attempt < a.Attempt, "%s #%d exists", a.Container, a.Attempt)
	}
	m.requireTurn(a.Container)
	m.require(a.Attempt+1 >= m.next[a.Container], "%s #%d was made before", a.Container, a.Attempt)
	m.next[a.Container] = max(m.next[a.Container], a.Attempt+1)
	m.ids++
	next := cri.Container{
		ID: fmt.Sprintf("c%d", m.ids), Name: a.Container, SandboxID: m.seen.Sandboxes[0].ID,
		State: cri.ContainerCreated, Attempt: a.Attempt, CreatedAt: m.now,
		From: cri.Origin{Hash: m.hash(a.Container)},
	}
	if spec, _ := podspec.Find(m.pod, a.Container); spec != nil && len(spec.ResizePolicy) > 0 {
		next.Annotations = map[string]string{resize.Annotation: resize.DescribeContainer(spec)}
	}
	m.seen.Containers = slices.Insert(m.seen.Containers, 0, next)
	return nil
}

// requireTurn checks independently of the code under test that everything has run that must run
// before the container.
func (m *machine) requireTurn(name string) {
	if c, _ := podspec.Find(m.pod, name); c == nil {
		return // an ephemeral container, which has no turn
	}
	for i := range m.pod.Spec.InitContainers {
		c := &m.pod.Spec.InitContainers[i]
		if c.Name == name {
			return
		}
		was := slices.ContainsFunc(m.seen.Containers, func(r cri.Container) bool {
			return r.Name == c.Name && r.SandboxID == m.seen.Sandboxes[0].ID &&
				(r.State == cri.ContainerExited && r.Exit.Reason == "Completed" ||
					podspec.IsSidecar(c) && !r.StartedAt.IsZero())
		})
		m.require(was, "%s starts before init container %s", name, c.Name)
	}
}

func (m *machine) start(c *cri.Container) {
	c.State, c.StartedAt = cri.ContainerRunning, m.now
	program := m.programs[c.Name]
	if len(program) == 0 {
		return
	}
	r := program[min(int(c.Attempt), len(program)-1)]
	if r.lasts > 0 {
		m.ends[c.ID], m.codes[c.ID] = m.now.Add(r.lasts), r.code
	}
}

func (m *machine) remove(ids []string) {
	m.seen.Containers = slices.DeleteFunc(m.seen.Containers, func(c cri.Container) bool {
		gone := slices.Contains(ids, c.ID)
		m.require(!gone || !maybeRunning(c), "removed %s while it runs", c.Name)
		if gone && c.State == cri.ContainerCreated {
			m.next[c.Name] = c.Attempt // nothing tells that it was
		}
		return gone
	})
}

func (m *machine) removeSandboxes(ids []string) {
	m.require(!slices.Contains(ids, m.seen.Sandboxes[0].ID), "removed the newest sandbox")
	m.seen.Sandboxes = slices.DeleteFunc(m.seen.Sandboxes, func(s cri.Sandbox) bool {
		gone := slices.Contains(ids, s.ID)
		m.require(!gone || !s.Ready, "removed sandbox #%d while it is ready", s.Attempt)
		return gone
	})
	for _, c := range m.seen.Containers {
		m.require(!slices.Contains(ids, c.SandboxID), "removed the sandbox of %s", c.Name)
	}
}

func (m *machine) eachSandbox(f func(*cri.Sandbox)) {
	for i := range m.seen.Sandboxes {
		f(&m.seen.Sandboxes[i])
	}
}

// loseSandbox ends the newest sandbox and all that runs in it, as a crash of its processes would.
func (m *machine) loseSandbox() {
	for i := range m.seen.Containers {
		if c := &m.seen.Containers[i]; c.State == cri.ContainerRunning {
			m.exit(c, 137, m.now)
		}
	}
	m.eachSandbox(func(s *cri.Sandbox) { s.Ready = false })
}

func (m *machine) hash(name string) string {
	for c := range podspec.Containers(m.pod) {
		if c.Name == name {
			return cri.ContainerHash(c)
		}
	}
	return ""
}

func (m *machine) require(ok bool, format string, args ...any) {
	if !ok {
		m.broken = append(m.broken, fmt.Sprintf(format, args...))
	}
}

// state is what the machine has, in a form that does not depend on ids and times.
func (m *machine) state() string {
	var lines []string
	for _, s := range m.seen.Sandboxes {
		lines = append(lines, fmt.Sprintf("sandbox #%d ready=%v", s.Attempt, s.Ready))
	}
	for _, c := range m.seen.Containers {
		lines = append(lines,
			fmt.Sprintf("%s #%d %s %d", c.Name, c.Attempt, c.State, c.Exit.Code))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// world plays a worker's rounds against a machine without goroutines, in a time of its own.
type world struct {
	*machine
	want   Desired
	memory *memory
	log    []string
	last   Decision
	// probed is what probes found, by container id.
	probed map[string]status.Probed
	// failed says why containers have to be stopped whatever probes found, by container id.
	failed map[string]string
	had    *podspec.Resources // what ran of the pod when the agent started
	// lost is set once the pod's cgroup is gone; a new sandbox has a new one.
	lost string
	// fault is asked before each action; an error is the action's, and without done the
	// action then has no effect.
	fault func(Action) (err error, done bool)
}

func newWorld(pod *v1.Pod) *world {
	return &world{machine: newMachine(pod), want: Desired{Pod: pod}, memory: newMemory(nil),
		probed: map[string]status.Probed{}, failed: map[string]string{}}
}

// round observes, decides and acts. It reports whether there was something to do.
func (w *world) round() bool {
	seen := w.observe()
	b := BackOff{}.withDefaults()
	w.memory.learnAttempts(w.want.Pod, seen, func(_ *v1.Pod, container string) uint32 {
		return w.next[container]
	})
	w.memory.learn(w.want, seen, b)
	d := step(input{Desired: w.want, observed: seen, probed: w.probed, failed: w.failed, had: w.had, now: w.now,
		memory: w.memory, backOff: b, lost: w.lost, holds: w.holds})
	w.memory.deadline, w.last = d.Deadline, d
	if d.Action == nil {
		return false
	}
	a := *d.Action
	if a.Kind == CreateSandbox {
		w.lost = ""
	}
	w.log = append(w.log, fmt.Sprintf("%v %s: %v", w.now.Sub(epoch), d.State, a))
	w.requireReason(d.State, seen, a)
	memory := w.memory // a fault may be the agent's death, and the next round has another
	memory.started(a)
	var err error
	done := true
	if w.fault != nil {
		err, done = w.fault(a)
	}
	if done {
		err = errors.Join(err, w.do(a))
	}
	if err != nil {
		memory.failed(a, err, w.now.Add(DefaultRetry))
	} else {
		memory.succeeded(a, w.now)
	}
	return true
}

// requireReason checks that no container is stopped that runs as the spec has it.
func (w *world) requireReason(s State, seen cri.Pod, a Action) {
	if s != SyncPod || a.Kind != StopContainers || status.SandboxProblem(w.pod, seen) != "" ||
		status.RestartAll(w.pod, seen).Len() > 0 {
		return
	}
	if w.lost != "" {
		w.require(a.Message == w.lost, "stopped without saying that the cgroup is gone")
		return
	}
	if a.Message == "FailedPostStartHook" {
		w.require(w.hook != nil, "stopped for a hook that did not fail")
		return
	}
	for _, c := range seen.Containers {
		newest, _ := seen.Container(c.Name)
		found := w.probed[c.ID]
		fine := c.State == cri.ContainerRunning && w.failed[c.ID] == "" &&
			found.Liveness != status.Fails && found.Startup != status.Fails &&
			c.From.Hash != "" && c.From.Hash == w.hash(c.Name) &&
			c.ID == newest.ID && c.SandboxID == seen.Sandboxes[0].ID
		w.require(!fine || !slices.Contains(a.IDs, c.ID), "stopped %s which runs unchanged", c.Name)
	}
}

// until plays rounds until the given time since the epoch, or until nothing more will happen.
func (w *world) until(t time.Duration) {
	end := epoch.Add(t)
	for range 10_000 {
		if w.round() {
			continue
		}
		next := w.tick()
		if wake := w.last.Wake; !wake.IsZero() && (next.IsZero() || wake.Before(next)) {
			next = wake
		}
		if next.IsZero() || next.After(end) {
			w.now = end
			return
		}
		w.now = next
	}
	w.require(false, "no end in sight")
}

func (w *world) waiting() string {
	var out []string
	for name, why := range w.last.Waiting {
		out = append(out, fmt.Sprintf("%s: %s: %s", name, why.Reason, why.Message))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// listed are the pod's containers in the order of their starts.
func listed(pod *v1.Pod) (out []*v1.Container) {
	for c := range podspec.Containers(pod) {
		out = append(out, c)
	}
	return out
}
