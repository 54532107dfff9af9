package podworker

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/resize"
	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// sync starts a pod and keeps it running: sandbox, init containers in order, then the regular
// containers.
func (p *plan) sync() {
	problem := cmp.Or(status.SandboxProblem(p.Pod, p.observed), p.lost)
	if problem != "" {
		p.makeSandbox(problem)
	} else if !p.stopStrays() && !p.restartAll() {
		p.startContainers()
	}
	if p.d.Action == nil {
		p.prune()
	}
	if p.d.Action == nil {
		p.updateVolumes()
	}
}

// updateVolumes comes last: it serves running containers, and starting one updates what that needs.
func (p *plan) updateVolumes() {
	switch {
	case p.due.IsZero():
	case p.due.After(p.now):
		p.d.wakeAt(p.due)
	default:
		p.propose(Action{Kind: UpdateVolumes})
	}
}

func (p *plan) startContainers() {
	next := status.NextInit(p.Pod, p.facts())
	for i := range p.Pod.Spec.InitContainers {
		c := &p.Pod.Spec.InitContainers[i]
		if i == next || i < next && podspec.IsSidecar(c) {
			p.keep(c, true)
		}
	}
	if next == len(p.Pod.Spec.InitContainers) {
		for i := range p.Pod.Spec.Containers {
			p.keep(&p.Pod.Spec.Containers[i], false)
		}
	}
	for c, kind := range podspec.All(p.Pod) {
		if kind == podspec.Ephemeral {
			p.startOnce(c)
		}
	}
}

// startOnce starts an ephemeral container unless it was started before, in any sandbox. It comes
// after all others, so that it delays nothing.
func (p *plan) startOnce(c *v1.Container) {
	switch records := p.records[c.Name]; {
	case len(records) == 0 && p.memory.attempts[c.Name] == 0:
		p.start(c, pause{})
	case len(records) > 0 && records[0].Unstarted():
		p.startAnew(c, records[0])
	default: // it runs, or has
	}
}

// makeSandbox creates the pod's sandbox, after stopping what is left of an earlier one.
func (p *plan) makeSandbox(problem string) {
	if alive(p.observed) {
		p.stopAll()
		if a := p.d.Action; a != nil && a.Kind == StopContainers {
			a.Message = p.lost
		}
		return
	}
	if p.behind != "" {
		p.allWait(fmt.Sprintf("waiting for pod %s of the same name to end", p.behind))
		return
	}
	if w := p.sinceMade(""); w.lasts(p.now) {
		p.d.wakeAt(w.end())
		p.d.Problem = status.Reason{Reason: cri.ReasonCreatePodSandbox, Message: fmt.Sprintf(
			"back-off %v creating another sandbox: %s", w.delay, problem)}
		p.allWait(p.d.Problem.Message)
		return
	}
	a := Action{Kind: CreateSandbox}
	if len(p.observed.Sandboxes) > 0 {
		a.Message = problem
	}
	for _, s := range p.observed.Sandboxes {
		a.Attempt = max(a.Attempt, s.Attempt+1)
	}
	p.proposeForPod(a)
	if p.d.Problem.Reason != "" {
		p.allWait(p.d.Problem.Message)
	}
}

// allWait reports why no container was started yet.
func (p *plan) allWait(message string) {
	reason := status.ReasonContainerCreating
	if len(p.Pod.Spec.InitContainers) > 0 {
		reason = status.ReasonPodInitializing
	}
	ran := status.Ran(p.observed)
	for c := range podspec.Containers(p.Pod) {
		if _, ok := ran[c.Name]; !ok {
			p.d.waits(c.Name, status.Reason{Reason: reason, Message: message})
		}
	}
}

// stopStrays stops containers that may run but should not: those that are not in the spec, older
// attempts, those of an earlier sandbox, those in an unknown state. It reports whether there are
// any, since nothing is started beside them.
func (p *plan) stopStrays() bool {
	known := map[string]bool{}
	for c := range podspec.All(p.Pod) {
		known[c.Name] = true
	}
	var ids []string
	for _, c := range p.observed.Containers {
		stray := c.State == cri.ContainerUnknown || !known[c.Name] ||
			c.ID != p.records[c.Name][0].ID ||
			c.SandboxID != p.observed.Sandboxes[0].ID
		if stray && maybeRunning(c) {
			ids = append(ids, c.ID)
		}
	}
	if len(ids) == 0 {
		return false
	}
	p.proposeForPod(p.withHooks(
		Action{Kind: StopContainers, IDs: ids, Grace: StopGrace(p.grace())}, ids))
	return true
}

// keep keeps a sidecar running, an init container until it has succeeded in this sandbox, and a
// regular container as long as its restart policy wants.
func (p *plan) keep(c *v1.Container, init bool) {
	records, succeeds := p.records[c.Name], init && !podspec.IsSidecar(c)
	if len(records) == 0 {
		p.start(c, pause{})
		return
	}
	switch record := records[0]; {
	case record.Unstarted():
		p.startAnew(c, record)
	case record.State == cri.ContainerRunning:
		if succeeds || !p.awaitHook(c, record) {
			p.keepRunning(c, record, init)
		}
	case succeeds && status.InitSucceeded(record.Exit):
		p.start(c, pause{}) // it did, but in an earlier sandbox
	case p.memory.again[record.ID] == AgainAtOnce:
		p.d.waits(c.Name, status.Reason{})
		p.start(c, pause{})
	case !init && p.memory.again[record.ID] == AgainLater:
		p.d.waits(c.Name, status.Reason{})
		p.start(c, p.sinceExit(c, record))
	case init || podspec.Restarts(p.Pod, c, record.Exit.Code):
		p.start(c, p.sinceExit(c, record))
	}
}

// keepRunning stops a running container whose definition changed, which a probe found dead, which a
// resize starts anew, or which has a failed device; one that has yet to succeed only for the last. A
// record without a hash counts as unchanged.
func (p *plan) keepRunning(c *v1.Container, record cri.Container, init bool) {
	a := Action{
		Kind: StopContainers, Container: c.Name, IDs: []string{record.ID}, Again: AgainAtOnce,
		Message: definitionChanged(c, init),
	}
	grace, lasts := p.grace(), !init || podspec.IsSidecar(c)
	kind, probe := failedProbe(c, p.probed[record.ID])
	switch changed := record.From.Hash != "" && record.From.Hash != cri.ContainerHash(c); {
	case lasts && changed:
	case lasts && p.resizeRestarts(c, record):
		a.Message = fmt.Sprintf("Container %s resize requires restart", c.Name)
	case lasts && probe != nil:
		a.Message, a.Again = probeFailed(p.Pod, c, kind, init)
		if own := probe.TerminationGracePeriodSeconds; own != nil {
			grace = graceOf(*own)
		}
	case p.failed[record.ID] != "":
		a.Message, a.Again = restarts(p.Pod, c, p.failed[record.ID], init)
	default:
		return
	}
	a.Grace = StopGrace(grace)
	p.propose(p.withHooks(a, a.IDs))
}

// resizeRestarts reports whether a container has to be started anew to have the resources that it was
// allocated.
func (in input) resizeRestarts(c *v1.Container, record cri.Container) bool {
	made := resize.Made(record)
	if had := in.had; made == nil && had != nil { // a kubelet made it
		if its, known := had.Containers[c.Name]; known {
			made = &its
		}
	}
	return made != nil && resize.Restarts(c, *made)
}

// definitionChanged says, in the kubelet's words, that a container is stopped because its spec
// changed.
func definitionChanged(c *v1.Container, init bool) string {
	if init {
		return fmt.Sprintf("Init container %s definition changed", c.Name)
	}
	return fmt.Sprintf("Container %s definition changed, will be restarted", c.Name)
}

// sinceExit returns the wait before a container that exited may run again.
func (in input) sinceExit(c *v1.Container, record cri.Container) pause {
	return pause{
		since: record.Exit.At,
		delay: in.backOff.delay(record.Attempt, in.memory.first[c.Name]),
	}
}

// start starts a container once its back-off and after are over. The error of the last try is
// reported until a try succeeds, and the back-off until the container is started.
func (p *plan) start(c *v1.Container, after pause) {
	if made := p.sinceMade(c.Name); made.lasts(p.now) &&
		(!after.lasts(p.now) || made.end().After(after.end())) {
		after = made
	}
	if after.delay > 0 {
		p.d.waits(c.Name, status.Reason{Reason: cri.ReasonCrashLoopBackOff, Message: fmt.Sprintf(
			"back-off %v restarting failed container=%s pod=%s_%s(%s)",
			after.delay, c.Name, p.Pod.Name, p.Pod.Namespace, p.Pod.UID)})
	}
	if after.lasts(p.now) {
		p.d.wakeAt(after.end())
		return
	}
	a := Action{Kind: StartContainer, Container: c.Name, Attempt: p.memory.attempts[c.Name]}
	for _, record := range p.records[c.Name] {
		a.Attempt = max(a.Attempt, record.Attempt+1)
	}
	if f, failed := p.propose(a); failed {
		p.d.waits(c.Name, f.why)
	}
}

// startAnew removes a record that a crash before or during the start left, so that the same attempt can
// be made again. If the runtime keeps it though its start has ended, as containerd may, the next attempt
// is made.
func (p *plan) startAnew(c *v1.Container, record cri.Container) {
	f, failed := p.propose(Action{
		Kind: RemoveContainers, Container: c.Name, IDs: []string{record.ID},
	})
	switch {
	case failed && record.State == cri.ContainerExited:
		p.start(c, pause{})
	case failed:
		p.d.waits(c.Name, f.why)
	}
}

// prune removes records that are no longer needed. It keeps the newest record of each container and
// its last exits, the two newest sandboxes, and the sandboxes of the kept containers.
func (p *plan) prune() {
	a := Action{Kind: RemoveContainers}
	seen := map[string]int{}
	for _, c := range p.observed.Containers {
		seen[c.Name]++
		if p.retention.Dead < 0 || seen[c.Name] <= 1+max(p.retention.Dead, 1) || maybeRunning(c) {
			continue
		}
		if due := c.CreatedAt.Add(p.retention.Age); due.After(p.now) && p.retention.Age > 0 {
			p.d.wakeAt(due)
			continue
		}
		a.IDs = append(a.IDs, c.ID)
	}
	if len(a.IDs) > 0 {
		p.propose(a)
	}
	a = Action{Kind: RemoveSandboxes}
	for _, s := range p.observed.Sandboxes[min(2, len(p.observed.Sandboxes)):] {
		used := slices.ContainsFunc(p.observed.Containers, func(c cri.Container) bool {
			return c.SandboxID == s.ID
		})
		if !used && !s.Ready {
			a.IDs = append(a.IDs, s.ID)
		}
	}
	if len(a.IDs) > 0 {
		p.propose(a)
	}
}
