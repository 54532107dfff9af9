package hollow

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/agent/placement/resize"
	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/agent/storage/volume"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/topology/podspec"
)

// exitKilled is the exit code of a killed process.
const exitKilled = 137

// runtime is a container runtime without containers. It implements agent.HollowRuntime: pods have
// what workers ask for, and containers end as crisim.ScriptFor says.
type runtime struct {
	nothing
	address func() string // for a new pod
	host    string        // for pods in the host's network
	changed *mailbox.Box[types.UID]
	changes chan types.UID // see Changes

	mu   sync.Mutex
	pods map[types.UID]*hollowPod
}

// hollowPod is a pod in the runtime. Its slices are newest first and are replaced, not changed in
// place.
type hollowPod struct {
	seen cri.Pod
	runs map[string]*run // by container id
	// settled is called when all containers have their new resources; nil: they have.
	settled func()
}

// run is a running container.
type run struct {
	script crisim.Script
	timer  *time.Timer // ends it by itself; nil: none
	ended  chan struct{}
}

func newRuntime(host string, address func() string) *runtime {
	return &runtime{
		address: address, host: host, changed: mailbox.New[types.UID](),
		changes: make(chan types.UID), pods: map[types.UID]*hollowPod{},
	}
}

// Observe implements podworker.Actuator.
func (r *runtime) Observe(_ context.Context, uid types.UID) (cri.Pod, error) {
	p, _ := r.Get(uid)
	p.UID, p.ReadAt = uid, time.Now()
	return p, nil
}

// Get returns a pod in the runtime.
func (r *runtime) Get(uid types.UID) (cri.Pod, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pods[uid]
	if p == nil {
		return cri.Pod{}, false
	}
	return p.seen, true
}

// All returns the pods in the runtime.
func (r *runtime) All() (out []cri.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pods {
		out = append(out, p.seen)
	}
	return out
}

// Changes sends the UIDs of pods in which something ended by itself, while Run runs.
func (r *runtime) Changes() <-chan types.UID { return r.changes }

// Run sends changes until ctx ends.
func (r *runtime) Run(ctx context.Context) error {
	return r.changed.Each(ctx, func(uid types.UID) { await.Send(ctx, r.changes, uid) })
}

// Probed returns passing probes for all running containers.
func (r *runtime) Probed(uid types.UID) map[string]status.Probed {
	out := map[string]status.Probed{}
	p, _ := r.Get(uid)
	for _, c := range p.Containers {
		if c.State == cri.ContainerRunning {
			out[c.ID] = status.Probed{
				Startup: status.Passes, Liveness: status.Passes, Readiness: status.Passes,
			}
		}
	}
	return out
}

// Do implements podworker.Actuator.
func (r *runtime) Do(ctx context.Context, pod *v1.Pod, _ cri.Pod, a podworker.Action, _ func()) (
	cri.Made, error) {
	return cri.Made{}, r.do(ctx, pod, a)
}

func (r *runtime) do(ctx context.Context, pod *v1.Pod, a podworker.Action) error {
	switch a.Kind {
	case podworker.CreateSandbox:
		r.createSandbox(pod, a.Attempt)
	case podworker.StartContainer:
		return r.start(pod, a)
	case podworker.StopContainers:
		return r.stop(ctx, pod.UID, a)
	case podworker.StopSandboxes:
		r.change(pod.UID, func(p *hollowPod) { p.stopSandboxes(a.IDs) })
	case podworker.RemoveContainers:
		r.change(pod.UID, func(p *hollowPod) { p.removeContainers(a.IDs) })
	case podworker.RemoveSandboxes:
		r.change(pod.UID, func(p *hollowPod) {
			p.seen.Sandboxes = slices.DeleteFunc(slices.Clone(p.seen.Sandboxes),
				func(s cri.Sandbox) bool { return slices.Contains(a.IDs, s.ID) })
		})
	case podworker.RemovePod:
		r.remove(pod.UID)
	case podworker.PostStart, podworker.UpdateVolumes, podworker.CleanUp:
		// Hooks and volumes do not exist here.
	default:
		return fmt.Errorf("action %q is not one that can be done", a.Kind)
	}
	return nil
}

// change applies do to a pod, if it is in the runtime.
func (r *runtime) change(uid types.UID, do func(*hollowPod)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.pods[uid]; p != nil {
		do(p)
	}
}

func (r *runtime) createSandbox(pod *v1.Pod, attempt uint32) {
	s := cri.Sandbox{
		ID: newID(), Attempt: attempt, Ready: true, HostNetwork: pod.Spec.HostNetwork,
		CreatedAt: time.Now(), Annotations: annotations(resize.Describe(pod)),
	}
	if s.IPs = []string{r.host}; !s.HostNetwork {
		s.IPs[0] = r.address()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pods[pod.UID]
	if p == nil {
		p = &hollowPod{
			seen: cri.Pod{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name},
			runs: map[string]*run{},
		}
		r.pods[pod.UID] = p
	}
	p.seen.Sandboxes = append([]cri.Sandbox{s}, p.seen.Sandboxes...)
}

// start starts a container.
func (r *runtime) start(pod *v1.Pod, a podworker.Action) error {
	spec, _ := podspec.Find(pod, a.Container)
	if spec == nil {
		return fmt.Errorf("start container %s: the pod has none of that name", a.Container)
	}
	script, err := crisim.ScriptFor(&runtimeapi.PodSandboxConfig{Annotations: pod.Annotations},
		&runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: spec.Name, Attempt: a.Attempt},
			Command:  spec.Command, Args: spec.Args, Image: &runtimeapi.ImageSpec{Image: spec.Image},
		})
	if err == nil && script.StartError != "" {
		err = fmt.Errorf("start container %s: %s", a.Container, script.StartError)
	}
	if err != nil {
		return err
	}
	now := time.Now()
	c := cri.Container{
		ID: newID(), Name: spec.Name, State: cri.ContainerRunning, Attempt: a.Attempt,
		CreatedAt: now, StartedAt: now, From: cri.Origin{
			Hash: cri.ContainerHash(spec), Image: spec.Image, ImageRef: spec.Image,
		},
		Applied: applied(pod, spec), Annotations: annotations(resize.DescribeContainer(spec)),
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pods[pod.UID]
	if p == nil || len(p.seen.Sandboxes) == 0 || !p.seen.Sandboxes[0].Ready {
		return fmt.Errorf("start container %s: the pod has no sandbox that is ready", a.Container)
	}
	c.SandboxID = p.seen.Sandboxes[0].ID
	p.seen.Containers = append([]cri.Container{c}, p.seen.Containers...)
	one := &run{script: script, ended: make(chan struct{})}
	p.runs[c.ID] = one
	if script.Exits {
		one.timer = time.AfterFunc(script.After, func() { r.end(pod.UID, c.ID, script.Exit) })
	}
	if p.settled != nil && !p.lags(pod) {
		p.settled()
		p.settled = nil
	}
	return nil
}

// end makes a container exit if it runs.
func (r *runtime) end(uid types.UID, id string, how crisim.Exit) {
	r.change(uid, func(p *hollowPod) {
		if p.end(id, how) {
			r.changed.Put(uid)
		}
	})
}

// stop asks containers to end, in their order, and returns when they have: after their grace period
// they are killed.
func (r *runtime) stop(ctx context.Context, uid types.UID, a podworker.Action) error {
	end := time.Now().Add(a.Grace)
	waits := r.ask(uid, a.Aside(), a.Grace)
	for _, group := range a.StopOrder {
		these := r.ask(uid, group, podworker.StopGrace(time.Until(end)))
		waits = append(waits, these...)
		within, cancel := context.WithDeadline(ctx, end)
		_ = awaitAll(within, these) // containers that have not ended by then do not delay others
		cancel()
	}
	return awaitAll(ctx, waits)
}

// ask asks containers to end, and returns the ones that run.
func (r *runtime) ask(uid types.UID, ids []string, grace time.Duration) (waits []*run) {
	r.change(uid, func(p *hollowPod) {
		for _, id := range ids {
			if one := p.runs[id]; one != nil {
				waits = append(waits, one)
				after, how := one.asked(grace)
				if after <= 0 {
					p.end(id, how)
					continue
				}
				time.AfterFunc(after, func() { r.end(uid, id, how) })
			}
		}
	})
	return waits
}

// awaitAll waits for the ends of containers.
func awaitAll(ctx context.Context, all []*run) error {
	for _, one := range all {
		if !await.On(ctx, one.ended) {
			return ctx.Err()
		}
	}
	return nil
}

// asked returns how and when the container ends after it was asked to.
func (r *run) asked(grace time.Duration) (time.Duration, crisim.Exit) {
	if r.script.IgnoreTerm || r.script.TermAfter > grace {
		return grace, crisim.Exit{Code: exitKilled}
	}
	return r.script.TermAfter, crisim.Exit{Code: r.script.TermCode}
}

// remove removes a pod.
func (r *runtime) remove(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.pods[uid]; p != nil {
		for id := range p.runs {
			p.end(id, crisim.Exit{Code: exitKilled})
		}
		delete(r.pods, uid)
		r.changed.Put(uid)
	}
}

// end makes a container exit; false: it does not run.
func (p *hollowPod) end(id string, how crisim.Exit) bool {
	one := p.runs[id]
	if one == nil {
		return false
	}
	if one.timer != nil {
		one.timer.Stop()
	}
	close(one.ended)
	delete(p.runs, id)
	reason := "Completed"
	if how.Code != 0 {
		reason = "Error"
	}
	p.seen.Containers = slices.Clone(p.seen.Containers)
	for i := range p.seen.Containers {
		if c := &p.seen.Containers[i]; c.ID == id {
			c.State, c.Exit = cri.ContainerExited, cri.Exit{
				At: time.Now(), Code: how.Code, Reason: cmp.Or(how.Reason, reason),
				Message: how.Message,
			}
		}
	}
	return true
}

// stopSandboxes makes sandboxes not ready and kills their containers.
func (p *hollowPod) stopSandboxes(ids []string) {
	p.seen.Sandboxes = slices.Clone(p.seen.Sandboxes)
	for i := range p.seen.Sandboxes {
		if s := &p.seen.Sandboxes[i]; slices.Contains(ids, s.ID) {
			s.Ready = false
		}
	}
	for _, c := range p.seen.Containers {
		if slices.Contains(ids, c.SandboxID) {
			p.end(c.ID, crisim.Exit{Code: exitKilled})
		}
	}
}

func (p *hollowPod) removeContainers(ids []string) {
	p.seen.Containers = slices.DeleteFunc(slices.Clone(p.seen.Containers),
		func(c cri.Container) bool {
			return slices.Contains(ids, c.ID) && c.State == cri.ContainerExited
		})
}

func newID() string { return string(uuid.NewUUID()) }

// nothing stands for the probes, volumes, hooks and termination messages that hollow pods lack.
type nothing struct{}

// Recall recalls nothing, since observing costs nothing here.
func (nothing) Recall(context.Context, types.UID, podworker.Done) (cri.Pod, bool) {
	return cri.Pod{}, false
}

func (nothing) Follow(*v1.Pod, v1.PodStatus, bool) {}
func (nothing) Forget(types.UID)                   {}

func (nothing) Due(*v1.Pod, time.Time) time.Time       { return time.Time{} }
func (nothing) HooksPending(*v1.Pod) map[string]uint32 { return nil }

func (nothing) TerminationMessage(*v1.Pod, *v1.Container, volume.Exit) (string, error) {
	return "", nil
}
