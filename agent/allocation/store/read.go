package store

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/internal/files"
)

// errUnusable marks a state file that was moved aside.
var errUnusable = errors.New("unusable state file")

// load reads the state file. A missing file is the empty state. One that cannot be used is moved
// aside, never deleted: the error, an errUnusable, has its new name and comes with the empty state.
func load(path string, now time.Time) (allocation.State, error) {
	state, err := files.Load(path, maxFile, now, decode)
	if state.Pods == nil {
		state.Pods = map[types.UID]allocation.Pod{}
	}
	var unusable *files.Unusable
	if errors.As(err, &unusable) {
		err = fmt.Errorf("%w: %w", errUnusable, err)
	}
	return state, err
}

// ReadState reads a state file and leaves it alone, whatever is in it.
func ReadState(path string) (allocation.State, error) {
	raw, err := files.Read(path, maxFile)
	if err != nil {
		return allocation.State{}, fmt.Errorf("read state: %w", err)
	}
	state, err := decode(raw)
	if err != nil {
		return allocation.State{}, fmt.Errorf("read state %s: %w", path, err)
	}
	return state, nil
}

// Fixed is a store of what does not change: nothing is written, and Commit answers ErrStopped.
func Fixed(state allocation.State) *Store {
	s := &Store{
		commits: make(chan commit), stopped: make(chan struct{}),
	}
	s.state.Store(&state)
	close(s.stopped)
	return s
}
