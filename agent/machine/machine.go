package machine

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/mailbox"
	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/await"
	"github.com/numalet/numalet/topology/memory"
)

// Hardware is the machine at one moment and what follows from it: never written to.
type Hardware struct {
	Machine *topology.Machine
	CPUs    *cpumanager.Static // nil: CPU manager policy none
	Memory  *memory.Static     // nil: memory manager policy None
	// Options are the topology manager's; they may know the machine's distances.
	Options     topology.Options
	Reservation node.Reservation
	// Capacity is what there is, and Allocatable what all pods together may request of it, both
	// without devices.
	Capacity, Allocatable v1.ResourceList
}

// MemoryNodes is where the memory of a container with these blocks may be; empty: anywhere.
func (h Hardware) MemoryNodes(blocks []memory.Block) topology.NodeSet {
	if h.Memory == nil {
		return topology.NodeSet{} // the blocks are of an earlier policy
	}
	return h.Memory.Mems(blocks)
}

// HugePageSizes are the sizes of huge pages that any node has a pool of, in bytes, ascending.
func (h Hardware) HugePageSizes() (sizes []int64) {
	for _, n := range h.Machine.Nodes() {
		for _, pool := range n.HugePages {
			sizes = append(sizes, int64(pool.PageBytes))
		}
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// Config says how the hardware is followed.
type Config struct {
	// Read looks at the machine again. It returns the one that it is given if nothing changed.
	// nil: the machine is data and stays as it is.
	Read func(now *topology.Machine) (*topology.Machine, error)
	// Sign costs little and changes with what must not wait for the Period: which CPUs are online.
	// It is asked each second; nil: nothing is that urgent.
	Sign func() string
	// Derive makes the hardware of a machine.
	Derive func(*topology.Machine) (Hardware, error)
	// Period is the time between two looks.
	Period time.Duration
}

// signPeriod is how often the sign is asked for.
const signPeriod = time.Second

// Current is the hardware that counts. Get and Reread are safe to call from anywhere.
type Current struct {
	cfg     Config
	now     atomic.Pointer[Hardware]
	changed mailbox.Topic
	asks    chan chan<- struct{} // closed after the next look

	// Run's own.
	said string // the last problem
	sign string // at the last look that succeeded
}

// New has first as the hardware until Run finds another one.
func New(cfg Config, first Hardware) *Current {
	c := &Current{cfg: cfg, asks: make(chan chan<- struct{})}
	c.now.Store(&first)
	return c
}

// Get is the hardware that counts now.
func (c *Current) Get() Hardware { return *c.now.Load() }

// Changes are published once Get returns another hardware.
func (c *Current) Changes() mailbox.Source { return &c.changed }

// Reread has Run look, and returns when it has or ctx ends. What was found counts then.
func (c *Current) Reread(ctx context.Context) {
	if c.cfg.Read == nil {
		return
	}
	looked := make(chan struct{})
	if !await.Send(ctx, c.asks, looked) {
		return
	}
	await.On(ctx, looked)
}

// Run follows the machine until ctx ends.
func (c *Current) Run(ctx context.Context) error {
	if c.cfg.Read == nil {
		<-ctx.Done()
		return nil
	}
	tick := time.Tick(c.cfg.Period)
	var signs <-chan time.Time // nil: never
	if c.cfg.Sign != nil {
		signs = time.Tick(signPeriod)
		c.look(ctx) // the machine was read before there was a sign
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		case looked := <-c.asks:
			c.lookFor(ctx, looked)
			continue
		case <-signs:
			if c.cfg.Sign() == c.sign {
				continue
			}
		}
		c.look(ctx)
	}
}

// lookFor looks once for all who ask now.
func (c *Current) lookFor(ctx context.Context, looked chan<- struct{}) {
	all := []chan<- struct{}{looked}
	for more := true; more; {
		select {
		case another := <-c.asks:
			all = append(all, another)
		default:
			more = false
		}
	}
	c.look(ctx)
	for _, looked := range all {
		close(looked)
	}
}

func (c *Current) look(ctx context.Context) {
	sign := ""
	if c.cfg.Sign != nil {
		sign = c.cfg.Sign()
	}
	before := c.Get()
	m, err := c.cfg.Read(before.Machine)
	if err == nil && m == before.Machine {
		c.said, c.sign = "", sign
		return
	}
	var after Hardware
	if err == nil {
		after, err = c.cfg.Derive(m)
	}
	if err != nil {
		if text := err.Error(); text != c.said {
			klog.FromContext(ctx).Error(err, "The machine changed in a way that is not followed")
			c.said = text
		}
		return
	}
	c.said, c.sign = "", sign
	c.now.Store(&after)
	klog.FromContext(ctx).Info("The machine changed",
		"cpus", after.Machine.Online(), "before", before.Machine.Online(),
		"allocatable", after.Allocatable, "before", before.Allocatable)
	c.changed.Publish()
}
