package allocation

import (
	"fmt"
	"os"
)

// ReadState reads a state file and leaves it alone, whatever is in it.
func ReadState(path string) (State, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return State{}, fmt.Errorf("read state: %w", err)
	}
	state, err := decode(raw)
	if err != nil {
		return State{}, fmt.Errorf("read state %s: %w", path, err)
	}
	return state, nil
}

// Fixed is a store of what does not change: nothing is written, and Commit answers ErrStopped.
func Fixed(state State) *Store {
	s := &Store{
		commits: make(chan commit), stopped: make(chan struct{}),
	}
	s.state.Store(&state)
	close(s.stopped)
	return s
}
