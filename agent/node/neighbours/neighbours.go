// Package neighbours tells which pods of a container runtime belong to another running agent. Each
// sandbox carries the root directory of the agent that created it, and a running agent holds the
// lock of its root directory. Pods of an agent that does not run may be adopted or removed by any
// agent.
package neighbours

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"

	"github.com/numalet/numalet/internal/complaint"
)

// ReasonShared is the event's reason for a runtime that two agents use.
const ReasonShared = "RuntimeShared"

// Config configures the search for neighbours.
type Config struct {
	Root string // the agent's own
	// Tell is called once for each other agent that runs; it must not block.
	Tell func(message string)
}

// fresh is how long an answer is valid.
const fresh = 2 * time.Second

// patience bounds the check of a root directory's lock. If the check takes longer, as on a mount
// that hangs, the agent counts as running.
const patience = time.Second

// Neighbours knows the other agents of a runtime.
type Neighbours struct {
	own  string
	tell func(string)

	mu    sync.Mutex
	known map[string]*neighbour // by root directory
}

// neighbour is another root directory.
type neighbour struct {
	runs      bool
	looked    time.Time // zero: never
	looking   bool
	complaint complaint.Complaint[bool]
}

// New returns a Neighbours that has looked at no directory yet.
func New(cfg Config) (*Neighbours, error) {
	own, err := filepath.Abs(cfg.Root)
	if err == nil {
		own, err = filepath.EvalSymlinks(own)
	}
	if err != nil {
		return nil, fmt.Errorf("find the root directory: %w", err)
	}
	return &Neighbours{own: own, tell: cfg.Tell, known: map[string]*neighbour{}}, nil
}

// Own returns the agent's root directory, as its sandboxes carry it.
func (n *Neighbours) Own() string { return n.own }

// Has reports whether another agent runs with the root directory; "" belongs to agents that do not
// record theirs.
func (n *Neighbours) Has(root string) bool {
	if root == "" || root == n.own {
		return false
	}
	if runs, done := n.begin(root); done {
		return runs
	}
	answer := make(chan bool, 1)
	go func() { // it ends when the file system answers; there is at most one for each directory
		runs := locked(root)
		n.end(root, runs)
		answer <- runs
	}()
	select {
	case runs := <-answer:
		return runs
	case <-time.After(patience):
		return true
	}
}

// Run reports whether another agent, whose sandbox was seen, is running.
func (n *Neighbours) Run() bool { return slices.ContainsFunc(n.roots(), n.Has) }

func (n *Neighbours) roots() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Keys(n.known))
}

// begin returns the last answer if it is fresh or a check is running; otherwise the caller must
// check.
func (n *Neighbours) begin(root string) (runs, done bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	other := n.known[root]
	if other == nil {
		other = &neighbour{runs: true}
		n.known[root] = other
	}
	if other.looking || time.Since(other.looked) < fresh {
		return other.runs, true
	}
	other.looking = true
	return false, false
}

func (n *Neighbours) end(root string, runs bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	other := n.known[root]
	other.runs, other.looked, other.looking = runs, time.Now(), false
	if other.complaint.Begins(runs) {
		n.tell(fmt.Sprintf("another numalet runs on this container runtime with root directory "+
			"%s: its pods are left alone, and both may give out the same CPUs and devices; stop "+
			"one of them, or give it another containerRuntimeEndpoint", root))
	}
}

// locked reports whether a process holds the lock of the directory.
func locked(root string) bool {
	lock := flock.New(root, flock.SetFlag(os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK))
	free, err := lock.TryRLock()
	if free {
		_ = lock.Unlock() // it was held briefly; an agent that starts waits for it
	}
	return err == nil && !free
}
