package machine

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
)

// Hardware is the machine at one moment and what follows from it. It is immutable.
type Hardware struct {
	Machine *topology.Machine
	CPUs    *cpumanager.Static // nil: CPU manager policy none
	Memory  *memory.Static     // nil: memory manager policy None
	// CPUDriver is the agent's own driver of resource claims, which gives exclusive CPUs; "": none.
	CPUDriver string
	// Options are the topology manager's; they may contain the machine's distances.
	Options     topology.Options
	Reservation nodestatus.Reservation
	// Capacity lists what the machine has, Allocatable what all pods together may request, both
	// without devices.
	Capacity, Allocatable v1.ResourceList
}

// MemoryNodes returns where the memory of a container with these blocks may be; empty: anywhere.
func (h Hardware) MemoryNodes(blocks []memory.Block) topology.NodeSet {
	if h.Memory == nil {
		return topology.NodeSet{} // the blocks come from an earlier policy
	}
	return h.Memory.Mems(blocks)
}

// HugePageSizes returns the page sizes of all pools of huge pages in bytes, ascending.
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
	// Read reads the machine again, and returns now if nothing changed. nil: the machine is data and
	// never changes.
	Read func(now *topology.Machine) (*topology.Machine, error)
	// Sign is cheap and changes with what must not wait for the Period: the online CPUs. It is called
	// each second; nil: nothing is that urgent.
	Sign func() string
	// Derive returns the hardware of a machine.
	Derive func(*topology.Machine) (Hardware, error)
	// Period is the time between two reads.
	Period time.Duration
}

// signPeriod is the time between two calls of Sign.
const signPeriod = time.Second

// Current holds the valid hardware. Get and Reread may be called from any goroutine.
type Current struct {
	cfg     Config
	now     atomic.Pointer[Hardware]
	changed mailbox.Topic
	asks    chan chan<- struct{} // closed after the next look

	// Run owns the fields below.
	wrong complaint.Complaint[string]
	sign  string // at the last successful look
}

// New returns a Current that holds first until Run finds another machine.
func New(cfg Config, first Hardware) *Current {
	c := &Current{cfg: cfg, asks: make(chan chan<- struct{})}
	c.now.Store(&first)
	return c
}

// Get returns the valid hardware.
func (c *Current) Get() Hardware { return *c.now.Load() }

// Changes publishes after Get has begun to return another hardware.
func (c *Current) Changes() mailbox.Source { return &c.changed }

// Reread makes Run read again, and returns when Get returns the result, or when ctx ends.
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
		c.look(ctx) // the machine was read before the first sign
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

// lookFor looks once for all callers that wait now.
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
	same := err == nil && m == before.Machine
	var after Hardware
	if err == nil && !same {
		after, err = c.cfg.Derive(m)
	}
	if c.wrong.Begins(complaint.Of(err)) {
		klog.FromContext(ctx).Error(err, "A change of the machine cannot be read or applied")
	}
	if err != nil {
		return
	}
	if c.sign = sign; same {
		return
	}
	c.now.Store(&after)
	klog.FromContext(ctx).Info("The machine changed",
		"cpus", after.Machine.Online(), "before", before.Machine.Online(),
		"allocatable", after.Allocatable, "before", before.Allocatable)
	c.changed.Publish()
}
