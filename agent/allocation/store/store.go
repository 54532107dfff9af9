package store

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/internal/mailbox"
)

// Store owns the assignments. State is safe to call from anywhere; Commit needs Run.
type Store struct {
	journal *journal
	state   atomic.Pointer[allocation.State]
	commits chan commit
	changed mailbox.Topic
	stopped chan struct{}
}

type commit struct {
	changes []allocation.Change
	done    chan error // capacity 1
}

// ErrStopped is what Commit answers once Run has returned.
var ErrStopped = errors.New("the assignment store has stopped")

// Open loads the state file in dir. When the file cannot be used it is moved aside and Open returns
// a usable, empty store together with an error that says so; any other error comes without a store.
func Open(dir string) (*Store, error) {
	s := &Store{
		journal: newJournal(filepath.Join(dir, FileName)),
		commits: make(chan commit),
		stopped: make(chan struct{}),
	}
	state, err := load(s.journal.path, time.Now())
	if err != nil && !errors.Is(err, errUnusable) {
		return nil, err
	}
	s.state.Store(&state)
	return s, err
}

// State is the last committed state.
func (s *Store) State() allocation.State { return *s.state.Load() }

// Changes are published when State is a new one.
func (s *Store) Changes() mailbox.Source { return &s.changed }

// Commit makes the changes durable and then visible, all or none; on error nothing changed.
// Commits that wait at the same time share one write. That nothing but drops is changed a power cut
// may undo, and nothing else does: what such a pod held is then released once more, and who was
// given it meanwhile comes later in the file.
func (s *Store) Commit(ctx context.Context, changes ...allocation.Change) error {
	c := commit{changes: changes, done: make(chan error, 1)}
	select {
	case s.commits <- c:
	case <-s.stopped:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
	return <-c.done // a write that has begun is waited for, so that the caller knows the outcome
}

// Run writes commits until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	defer s.journal.close()
	defer close(s.stopped)
	for {
		select {
		case <-ctx.Done():
			return nil
		case first := <-s.commits:
			s.apply(append([]commit{first}, s.waiting()...))
		}
	}
}

// waiting takes the commits that other goroutines are blocked on right now.
func (s *Store) waiting() (more []commit) {
	for {
		select {
		case c := <-s.commits:
			more = append(more, c)
		default:
			return more
		}
	}
}

func (s *Store) apply(batch []commit) {
	var changes []allocation.Change
	for _, c := range batch {
		changes = append(changes, c.changes...)
	}
	next := s.State().With(changes)
	err := s.journal.record(next, changes)
	if err == nil {
		s.state.Store(&next)
		s.changed.Publish()
	}
	for _, c := range batch {
		c.done <- err
	}
}
