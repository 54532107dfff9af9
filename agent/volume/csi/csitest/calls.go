package csitest

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
)

// Fault makes calls misbehave.
type Fault struct {
	// Hang: the call is not answered before it is canceled.
	Hang bool
	// Done: the call has done its work before it hangs or fails.
	Done bool
	// Err is the error of the call; nil: it is answered.
	Err error
	// Count is how many calls misbehave; 0: all.
	Count int
}

// Call is a call that the driver got.
type Call struct {
	RPC     string
	Request proto.Message
	Began   time.Time
}

// calls has the calls that the driver got, and which of them are to misbehave.
type calls struct {
	mu     sync.Mutex // guards the fields below
	all    []Call
	faults map[string]Fault
}

// Calls returns the calls of these names so far; of all but those that only ask without a name.
func (c *calls) Calls(names ...string) (out []Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.all {
		asks := one.RPC == Capabilities || one.RPC == Info
		if slices.Contains(names, one.RPC) || len(names) == 0 && !asks {
			out = append(out, one)
		}
	}
	return out
}

// Did returns the names of the calls so far, but for those that only ask.
func (c *calls) Did() (out []string) {
	for _, one := range c.Calls() {
		out = append(out, one.RPC)
	}
	return out
}

// Forget forgets the calls so far.
func (c *calls) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = nil
}

// Fault makes calls of one name misbehave; the zero Fault ends that.
func (c *calls) Fault(rpc string, f Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults[rpc] = f
}

// begin records a call, and returns how it is to misbehave.
func (c *calls) begin(rpc string, req proto.Message) Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, Call{rpc, proto.Clone(req), time.Now()})
	f := c.faults[rpc]
	if f.Count == 1 {
		delete(c.faults, rpc)
	} else if f.Count > 1 {
		f.Count--
		c.faults[rpc] = f
	}
	return f
}
