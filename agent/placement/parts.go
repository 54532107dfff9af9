package placement

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/node/hostinfo"
	"github.com/numalet/numalet/agent/placement/claims"
	"github.com/numalet/numalet/agent/placement/health"
	"github.com/numalet/numalet/agent/placement/released"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/internal/housekeeping"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/part"
)

// Pods are the pods of the node, as the floor looks at them.
type Pods struct {
	Get    func(types.UID) (*v1.Pod, bool)
	Status func(types.UID) v1.PodStatus
	// Active lists the admitted pods that have not ended, and Running what the runtime has.
	Active  func() []*v1.Pod
	Running func() []cri.Pod
	// Whole reports whether all pods of the node are known, and MayHave whether the node has a pod, or may
	// have it.
	Whole   func() bool
	MayHave func(types.UID) bool
	Changed mailbox.Source // other pods are active than before

	// Refresh has the pod's status made again, and Retry also has a pod looked at that waits after a failure.
	Refresh, Retry func(types.UID)
	// Grace is how long a pod gets to exit by its own spec, and End ends a pod whose devices failed.
	Grace func(*v1.Pod) time.Duration
	End   func(ends *v1.Pod, message string, grace time.Duration)
}

// Parts lists the goroutines that run from the start.
func (p *Placement) Parts(pods Pods) []part.Part {
	parts := []part.Part{
		part.Of("assignment store", p.Store.Run), part.Of("device plugins", p.Plugins.Run),
		part.Of("drivers of resource claims", p.Drivers.Run),
		part.Of("health of drivers' devices", p.Drivers.Health.Run),
	}
	if p.Claims.Manager == nil {
		return parts
	}
	return append(parts,
		part.Of("resource claims", func(ctx context.Context) error { return p.Claims.Run(ctx, pods.claiming) }),
		part.Each("unprepared claims", p.Claims.unprepared, pods.Retry))
}

// claiming returns the pods that have not ended, and those that run; false: they are not known yet.
func (p Pods) claiming() (out claims.Pods, known bool) {
	if !p.Whole() {
		return out, false
	}
	out.Active = sets.New[types.UID]()
	for _, pod := range p.Running() {
		if pod.Running() {
			out.Active.Insert(pod.UID)
		}
	}
	for _, pod := range p.Active() {
		if claim.Any(pod) && out.Active.Has(pod.UID) {
			out.Running = append(out.Running, pod)
		}
		out.Active.Insert(pod.UID)
	}
	return out, true
}

// Followers lists the goroutines that begin once running pods were adopted: plugins hear of released devices,
// which are free then, so that free is called, and what the settings say is done about failed devices.
func (p *Placement) Followers(pods Pods, free func()) ([]part.Part, error) {
	notifier := released.New(released.Config{
		Store: p.Store, Plugins: p.Plugins, Reassignable: free, Tell: p.Events.OnNode,
		Changed: mailbox.Subscribe(p.Store.Changes(), p.Offered),
	})
	failures, err := health.NewFailures(health.FailuresConfig{
		Config: p.health(pods), Book: p.Failures, Known: pods.MayHave, Grace: pods.Grace, End: pods.End,
		Changed:  mailbox.Subscribe(pods.Changed, p.Offered, p.Drivers.Ill, p.Store.Changes()),
		Registry: p.Registry,
	})
	return []part.Part{
		part.Of("released devices", notifier.Run), part.Of("failed devices", failures.Run)}, err
}

// Look is the task that looks at the health of what pods hold.
func (p *Placement) Look(pods Pods) housekeeping.Task {
	return housekeeping.Task{
		Name: "health of what pods hold", Period: time.Minute,
		On:  []mailbox.Source{p.Hardware.Changes(), pods.Changed, p.Offered, p.Drivers.Ill, p.Store.Changes()},
		Run: health.New(p.health(pods)).Look,
	}
}

// health configures the followers of the hardware that pods hold.
func (p *Placement) health(pods Pods) health.Config {
	return health.Config{
		Hardware: p.Hardware.Get, State: p.Store.State, Inventory: p.Plugins.Inventory,
		Drivers: p.Drivers.Health, Pod: pods.Get, Status: pods.Status,
		Refresh: pods.Refresh, Tell: p.Events.Pod, Rules: p.Failures.Rules(),
		Devices: reportsHealth(p.Node), Unified: hostinfo.Unified(),
	}
}
