package csitest

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/numalet/numalet/deviceplugin/watcher/watchertest"
)

// Fault makes calls misbehave.
type Fault = watchertest.Fault

// Call is a call that the driver got.
type Call struct {
	RPC     string
	Request proto.Message
	Began   time.Time
}

// calls has the calls that the driver got, and which of them are to misbehave.
type calls struct {
	watchertest.Faults

	mu  sync.Mutex // guards all
	all []Call
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

// begin records a call, and returns how it is to misbehave.
func (c *calls) begin(rpc string, req proto.Message) Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, Call{rpc, proto.Clone(req), time.Now()})
	return c.Take(rpc)
}
