package admission

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/line"
	"github.com/numalet/numalet/agent/placement/admission/report"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology"
)

// Plugins are the device plugins, as far as admission calls them.
type Plugins interface {
	Inventory() devicemanager.Inventory
	Preferred(ctx context.Context, req devicemanager.PreferredRequest) ([]string, error)
	Allocate(ctx context.Context, resource string, ids []string) (
		*pluginapi.ContainerAllocateResponse, error)
}

// Config configures a Queue.
type Config struct {
	Facts
	Rules    topology.Rules
	Handlers []decide.Handler // in order
	// ResizeRule says which resizes the node does not do; nil: it does all.
	ResizeRule decide.ResizeRule
	// ResizePreempts: pods make way for the resize of a critical one.
	ResizePreempts bool
	Store          *store.Store
	// Plugins may know their deadlines: AllocateDeadline and PreferredDeadline.
	Plugins Plugins
	// Needs knows what pods cannot start without of the API server; nil: nothing.
	Needs Needs
	// Claims knows the resource claims of pods; nil: no pod has any.
	Claims Claims
	// BootID is the kernel's boot id now.
	BootID string
	// Wait is how long a pod may wait; 0: it is rejected instead.
	Wait time.Duration
	Outcomes
}

// Facts tell of the node as it is now. After a change, Poke.
type Facts struct {
	// Hardware is the machine, with the policies on it.
	Hardware func() machine.Hardware
	// Node is the node's object, for handlers, nil as long as it is not known; nil: it never is.
	Node func() *v1.Node
	// Clustered: Node will know the object that the API server has.
	Clustered bool
	// State is the node's state, for handlers; nil: nothing keeps it from taking pods.
	State func() nodestatus.State
	// Reread has the machine or the node's object looked at again; after it returns, Hardware or Node
	// has what was found. nil: there is nothing to look at.
	Reread func(ctx context.Context, what decide.Stale)
}

// Outcomes are the receivers of what admission finds. None may block.
type Outcomes struct {
	// Report gets each outcome, from Run's goroutine.
	Report func(report.Result)
	// Preempt ends a pod that makes way for a critical one; nil: no pod makes way. It is called from
	// Run's goroutine, once for each pod.
	Preempt func(report.Preemption)
	// Unadvised gets a plugin's preference that cannot be followed in full, and why; it may be nil. It
	// is called from other goroutines than Run's.
	Unadvised func(pod *v1.Pod, key allocation.AskKey, err error)
}

// mayWant reports whether a resource's plugin may want to hear what was released. A plugin that has
// said nothing since the agent started is asked once it is there.
func (c *Config) mayWant(resource string) bool {
	return c.Plugins.Inventory().WantsReleased(resource) != devicemanager.ReleasedUnwanted
}

func (c *Config) view() decide.View {
	v := decide.View{Hardware: c.Hardware(), Inventory: c.Plugins.Inventory()}
	if c.Node != nil {
		v.Node = c.Node()
	}
	if c.Clustered {
		v = v.InCluster()
	}
	if c.State != nil {
		v.State = c.State()
	}
	return v
}

func (c *Config) settings() line.Settings {
	s := line.Settings{
		Rules: c.Rules, Handlers: c.Handlers, ResizeRule: c.ResizeRule,
		ResizePreempts: c.ResizePreempts, BootID: c.BootID, Wait: c.Wait,
		Rereads: c.Reread != nil, Inquires: c.Needs != nil, Clock: time.Now,
	}
	if p, ok := c.Plugins.(interface {
		AllocateDeadline() time.Duration
		PreferredDeadline() time.Duration
	}); ok {
		s.AllocateDeadline, s.PreferredDeadline = p.AllocateDeadline(), p.PreferredDeadline()
	}
	return s
}

// Still returns what a pod is decided with on a node at rest that runs the pods of the store.
func (c *Config) Still() decide.Snapshot {
	s := c.settings()
	return s.Snapshot(c.view(), allocation.Ledger{}).Still(c.Store.State().List())
}
