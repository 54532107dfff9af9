// Package actuator carries out the actions of pod workers: it calls the runtime, volumes, cgroups
// and device plugins.
package actuator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	internalapi "k8s.io/cri-api/pkg/apis"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/node/userns"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/resources"
	"github.com/numalet/numalet/agent/pods/handler"
	"github.com/numalet/numalet/agent/pods/lifecycle"
	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/agent/pods/records"
	"github.com/numalet/numalet/agent/storage/volume"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/cri/logfiles"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/version"
	"github.com/numalet/numalet/topology/podspec"
)

// Config holds what an Actuator depends on.
type Config struct {
	Runtime  internalapi.RuntimeService
	Images   *cri.Images
	Observer *lifecycle.PLEG
	Volumes  *volume.Volumes
	Objects  Objects       // nil: there is no API server
	Cgroups  *cgroups.Tree // nil: pods get no cgroups of ours
	// Resources says what containers and pods are created with.
	Resources *resources.Loop
	Plugins   *devicemanager.Plugins
	// Claims has what containers get of resource claims, and unprepares them; nil: pods have none.
	Claims Claims
	// State returns the assignments.
	State func() allocation.State
	// Hardware returns the present machine.
	Hardware func() machine.Hardware
	Node     Node
	Tell     Tell
}

// Tell publishes what happens. None of its functions may block.
type Tell struct {
	// Event makes an event of a pod, Node one of the node.
	Event func(pod *v1.Pod, eventType, reason, message string)
	Node  func(eventType, reason, message string)
	// Container makes an event of a pod that names one of its containers.
	Container func(of podspec.Ref, eventType, reason, message string)
	// Started counts the start of a container, or of a pod's sandbox if c is nil.
	Started func(pod *v1.Pod, c *v1.Container, err error)
	// Hooked counts a hook; fallback is set if its HTTPS server answered only without TLS.
	Hooked func(fallback bool, err error)
}

// Objects reads what pods need from the API server, apart from the contents of their volumes.
type Objects interface {
	// Begin is called before the pod is created, Release once nothing of it is left.
	Begin(pod *v1.Pod) error
	Release(pod types.UID)
	// Environment returns the objects that a container's environment refers to.
	Environment(ctx context.Context, pod *v1.Pod, c *v1.Container) (*cri.Objects, error)
	// PullSecrets returns the pod's image pull secrets, and the names of those that are missing.
	PullSecrets(ctx context.Context, pod *v1.Pod) (found []*v1.Secret, missing []string)
	// RuntimeHandler returns the handler of the runtime class of that name.
	RuntimeHandler(ctx context.Context, class string) (string, error)
}

// Claims knows and releases resource claims; *claims.Manager does.
type Claims interface {
	// CDI returns the CDI ids that drivers prepared for a container. Claims that are no longer prepared
	// are prepared again first.
	CDI(ctx context.Context, pod *v1.Pod, container string) ([]string, error)
	// Unprepare returns when the pod holds no claim any more, or why a try to unprepare one failed.
	Unprepare(ctx context.Context, pod types.UID) error
}

// Node holds the node's settings of sandboxes and containers.
type Node struct {
	Root          string // the agent's root directory, which sandboxes carry
	Logs          logfiles.Place
	ClusterDomain string
	DNS           cri.DNS
	Network       Network
	Facts         cri.Facts // without addresses
	Security      cri.SecurityOptions
	// Users assigns user namespaces to pods. Handlers are the runtime's handlers.
	Users    *userns.Ranges
	Handlers []cri.RuntimeHandler
	// ImageHandlers: images are pulled and looked for by the pod's runtime handler
	// (RuntimeClassInImageCriApi).
	ImageHandlers bool
	// HTTP2: hooks may ask for HTTP/2 without TLS (H2CContainerProbe).
	HTTP2 bool
	// Sysctls are the defaults of pods that do not set them.
	Sysctls map[string]string
}

// Network knows the node's present network. Its functions do not block.
type Network struct {
	// IPs returns the node's addresses, the primary one first.
	IPs func() []string
	// Problem says in the kubelet's words why the runtime gives pods no network of their own; "" if
	// it does.
	Problem func() string
}

// Actuator implements podworker.Actuator.
type Actuator struct {
	cfg          Config
	hooks        *handler.Handlers
	volumeErrors volumeErrors
}

// New returns an actuator.
func New(cfg Config) *Actuator {
	return &Actuator{cfg: cfg, hooks: handler.New(handler.Config{
		Runtime: cfg.Runtime, Version: version.Short(), HTTP2: cfg.Node.HTTP2,
	})}
}

// Observe reads the pod from the runtime.
func (a *Actuator) Observe(ctx context.Context, uid types.UID) (cri.Pod, error) {
	return a.cfg.Observer.Observe(ctx, uid)
}

// Recall returns what is known of a pod after an action, without listing what the runtime has. That
// is enough after an action that creates or stops something: the pod's containers were all observed
// before the first such action, and the pod is read in full after the last one. It reports false
// after other actions.
func (a *Actuator) Recall(ctx context.Context, uid types.UID, done podworker.Done) (cri.Pod, bool) {
	switch done.Kind {
	case podworker.CreateSandbox, podworker.StartContainer, podworker.StopContainers:
		pod, err := a.cfg.Observer.Recheck(ctx, uid, done.Made)
		return pod, err == nil
	case podworker.StopSandboxes:
		return a.cfg.Observer.Stopped(uid, done.IDs), true
	case podworker.None, podworker.ReleaseClaims, podworker.CleanUp:
		return a.cfg.Observer.Get(uid)
	default:
		return cri.Pod{}, false
	}
}

// Do carries out one action.
func (a *Actuator) Do(ctx context.Context, pod *v1.Pod, observed cri.Pod,
	act podworker.Action, yield func()) (made cri.Made, err error) {
	switch act.Kind {
	case podworker.CreateSandbox:
		made.Sandbox, err = a.build(ctx, pod).replaceSandbox(ctx, observed, act.Attempt)
		a.cfg.Tell.Started(pod, nil, err)
	case podworker.StartContainer:
		b := a.build(ctx, pod)
		if err = b.completeVolumes(ctx); err == nil {
			made, err = b.startContainer(ctx, observed, act, yield)
		}
		c, _ := podspec.Find(pod, act.Container)
		a.cfg.Tell.Started(pod, c, err)
	case podworker.PostStart:
		err = a.postStart(ctx, pod, observed, act)
	case podworker.UpdateVolumes:
		err = a.build(ctx, pod).updateVolumes(ctx)
	default:
		err = a.takeAway(ctx, pod, observed, act)
	}
	return made, err
}

// takeAway carries out an action that stops or removes something of the pod.
func (a *Actuator) takeAway(ctx context.Context, pod *v1.Pod, observed cri.Pod,
	act podworker.Action) error {
	defer a.cfg.Observer.Ending(pod.UID)()
	switch act.Kind {
	case podworker.StopContainers:
		return a.killed(ctx, pod, a.stopContainers(ctx, pod, observed, act))
	case podworker.StopSandboxes:
		return a.killed(ctx, pod, each(act.IDs, func(id string) error {
			return a.cfg.Runtime.StopPodSandbox(ctx, id)
		}))
	case podworker.RemoveSandboxes:
		return a.removeSandboxes(ctx, act.IDs)
	case podworker.RemoveContainers:
		return a.removeContainers(ctx, observed, act)
	case podworker.ReleaseClaims:
		return a.releaseClaims(ctx, pod)
	case podworker.CleanUp:
		return a.cleanUp(ctx, pod, observed)
	case podworker.RemovePod:
		return a.removePod(ctx, pod, observed)
	default:
		return fmt.Errorf("action %q is not one that can be done", act.Kind)
	}
}

// killed makes an event of a failed stop, unless the action was cancelled.
func (a *Actuator) killed(ctx context.Context, pod *v1.Pod, err error) error {
	if err != nil && ctx.Err() == nil {
		a.cfg.Tell.Event(pod, v1.EventTypeWarning, "FailedKillPod",
			fmt.Sprintf("error killing pod: %v", err))
	}
	return err
}

// unmounted makes an event of volumes that could not be taken back, if that is news, unless the action
// was cancelled.
func (a *Actuator) unmounted(ctx context.Context, pod *v1.Pod, err error) error {
	if ctx.Err() == nil && !volume.IsUsual(err) {
		reported := err
		if within := errors.Unwrap(err); within != nil { // without the pod, which the event names
			reported = within
		}
		a.cfg.Tell.Event(pod, v1.EventTypeWarning, volume.ReasonUnmount, reported.Error())
	}
	return err
}

// releaseClaims makes an event of a failure, unless the action was cancelled.
func (a *Actuator) releaseClaims(ctx context.Context, pod *v1.Pod) error {
	if a.cfg.Claims == nil {
		return nil
	}
	err := a.cfg.Claims.Unprepare(ctx, pod.UID)
	if err != nil && ctx.Err() == nil {
		a.cfg.Tell.Event(pod, v1.EventTypeWarning, podworker.ReasonUnprepare,
			fmt.Sprintf("Failed to unprepare dynamic resources: %v", err))
	}
	return err
}

// stopContainers stops all containers concurrently, since each may take its whole grace period. The
// container's hook and the wait for other containers count towards the grace period.
func (a *Actuator) stopContainers(ctx context.Context, pod *v1.Pod, observed cri.Pod,
	act podworker.Action) error {
	for _, id := range act.IDs {
		c, _ := observed.ContainerOf(id)
		name := cmp.Or(c.Name, id)
		a.cfg.Tell.Container(podspec.Ref{Pod: pod, Container: name}, v1.EventTypeNormal, "Killing",
			cmp.Or(act.Message, "Stopping container "+name))
	}
	hooks, order, end := sets.New(act.Hooks...), newTerminationOrder(act), time.Now().Add(act.Grace)
	return each(act.IDs, func(id string) error {
		if hooks.Has(id) {
			defer a.preStop(ctx, pod, observed, id, end)()
		}
		order.await(ctx, id, end)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		left := podworker.StopGrace(time.Until(end))
		err := a.cfg.Runtime.StopContainer(ctx, id, int64(left.Seconds()))
		if err == nil || status.Code(err) == codes.NotFound {
			order.ended(id)
		}
		return err
	})
}

// cleanUp removes the pod's cgroup, which kills the processes left in it, and then its volumes,
// which nothing uses any more. The termination messages of containers stay as long as the runtime
// has records of these.
func (a *Actuator) cleanUp(ctx context.Context, pod *v1.Pod, observed cri.Pod) error {
	if a.cfg.Cgroups != nil {
		if err := a.cfg.Cgroups.RemovePod(ctx, pod.UID); err != nil {
			return fmt.Errorf("remove the cgroup of pod %s: %w", pod.UID, err)
		}
	}
	a.cfg.Volumes.Recall(pod)
	tearDown := a.cfg.Volumes.TearDown
	if len(observed.Containers) > 0 {
		tearDown = a.cfg.Volumes.Clear
	}
	if err := tearDown(ctx, pod.UID); err != nil {
		return fmt.Errorf("tear down the volumes of pod %s: %w", pod.UID, a.unmounted(ctx, pod, err))
	}
	a.volumeErrors.forget(pod.UID)
	if a.cfg.Objects != nil {
		a.cfg.Objects.Release(pod.UID)
	}
	if a.cfg.Node.Users != nil {
		return a.cfg.Node.Users.Release(pod.UID)
	}
	return nil
}

// removePod removes the runtime's records last: while they exist, the rest is found again after a
// crash.
func (a *Actuator) removePod(ctx context.Context, pod *v1.Pod, observed cri.Pod) error {
	if err := a.cfg.Volumes.TearDown(ctx, pod.UID); err != nil {
		return fmt.Errorf("remove the directory of pod %s: %w", pod.UID, a.unmounted(ctx, pod, err))
	}
	if err := os.RemoveAll(cri.PodLogDir(a.cfg.Node.Logs.Dir, pod)); err != nil {
		return fmt.Errorf("remove the logs of pod %s: %w", pod.UID, err)
	}
	var all podworker.Action
	var sandboxes []string
	for _, c := range observed.Containers {
		all.IDs = append(all.IDs, c.ID)
	}
	for _, s := range observed.Sandboxes {
		sandboxes = append(sandboxes, s.ID)
	}
	if err := a.removeContainers(ctx, observed, all); err != nil {
		return err
	}
	return a.removeSandboxes(ctx, sandboxes)
}

func (a *Actuator) removeSandboxes(ctx context.Context, ids []string) error {
	return each(ids, func(id string) error { return a.cfg.Runtime.RemovePodSandbox(ctx, id) })
}

func (a *Actuator) removeContainers(ctx context.Context, observed cri.Pod,
	act podworker.Action) error {
	records := records.Records{
		Runtime:  a.cfg.Runtime,
		Logs:     a.cfg.Node.Logs,
		KeepLogs: act.KeepLogs,
	}
	return each(act.IDs, func(id string) error { return records.Remove(ctx, observed, id) })
}

// each calls f for all ids concurrently. If an object is gone, f has succeeded.
func each(ids []string, f func(id string) error) error {
	return await.Each(ids, -1, func(id string) error {
		if err := f(id); status.Code(err) != codes.NotFound {
			return err
		}
		return nil
	})
}
