package watchertest

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"github.com/numalet/numalet/internal/await"
)

// Fault makes calls misbehave.
type Fault struct {
	// Done: the call does its work before it misbehaves.
	Done bool
	// Delay comes first; a call that is canceled meanwhile ends.
	Delay time.Duration
	// Hang ends only with the call.
	Hang bool
	// Err is the error of the call; nil: it is answered.
	Err error
	// Count is how many calls misbehave; 0: all.
	Count int
}

// Works reports whether the call does its work.
func (f Fault) Works() bool { return f.Done || !f.Hang && f.Err == nil }

// Suffer waits as the fault says, and returns the call's error.
func (f Fault) Suffer(ctx context.Context) error {
	if f.Hang {
		<-ctx.Done()
	}
	if f.Delay > 0 {
		await.For(ctx, f.Delay)
	}
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	return f.Err
}

// Faults has the faults of calls by name. The zero value has none.
type Faults struct {
	mu  sync.Mutex // guards all
	all map[string]Fault
}

// Fault makes calls of one name misbehave; the zero Fault ends that.
func (f *Faults) Fault(rpc string, is Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = map[string]Fault{}
	}
	f.all[rpc] = is
}

// Take returns the fault of the next call of that name, and counts it down.
func (f *Faults) Take(rpc string) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	is := f.all[rpc]
	switch {
	case is.Count == 1:
		delete(f.all, rpc)
	case is.Count > 1:
		left := is
		left.Count--
		f.all[rpc] = left
	}
	return is
}
