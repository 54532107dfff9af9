package store

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/internal/files"
)

// load reads the state file; a missing file is the empty state. If the file cannot be used, load
// moves it aside and returns the empty state with a files.ErrUnusable, which has the new name.
func load(path string, now time.Time) (allocation.State, error) {
	state, err := files.Load(path, maxFile, now, decode)
	if state.Pods == nil {
		state.Pods = map[types.UID]allocation.Pod{}
	}
	if errors.Is(err, files.ErrUnusable) {
		err = fmt.Errorf("unusable state file: %w", err)
	}
	return state, err
}

// ReadState reads a state file and never changes or moves it.
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

// Fixed returns a store of a state that never changes: Commit returns ErrStopped.
func Fixed(state allocation.State) *Store {
	s := &Store{group: files.NewGroup[[]allocation.Change]()}
	s.state.Store(&state)
	s.group.Close()
	return s
}
