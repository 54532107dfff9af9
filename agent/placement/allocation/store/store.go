package store

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/internal/mailbox"
)

// ReasonQuarantined is the reason of the event about an assignment file that could not be used and
// was moved aside.
const ReasonQuarantined = "StateFileQuarantined"

// Store owns the assignments. State is safe to call from anywhere; Commit needs Run.
type Store struct {
	journal *files.Journal
	state   atomic.Pointer[allocation.State]
	commits chan commit
	changed mailbox.Topic
	stopped chan struct{}
}

type commit struct {
	changes []allocation.Change
	done    chan error // capacity 1
}

// ErrStopped is the error of Commit after Run has returned.
var ErrStopped = errors.New("the assignment store has stopped")

// Open loads the state file in dir. If the file cannot be used, Open moves it aside and returns an
// empty store with an error that says so. With any other error there is no store.
func Open(dir string) (*Store, error) {
	s := &Store{
		journal: newJournal(filepath.Join(dir, FileName)),
		commits: make(chan commit),
		stopped: make(chan struct{}),
	}
	state, err := load(s.journal.Path, time.Now())
	if err != nil && !errors.Is(err, files.ErrUnusable) {
		return nil, err
	}
	s.state.Store(&state)
	return s, err
}

// State returns the last committed state.
func (s *Store) State() allocation.State { return *s.state.Load() }

// Changes publishes each new State.
func (s *Store) Changes() mailbox.Source { return &s.changed }

// Commit makes all changes durable and then visible; on an error it changes nothing. Commits that
// wait at the same time share one write. A commit that only drops pods need not survive a power
// cut: the release is then repeated. If another pod got the resources meanwhile, its commit did
// survive, and the drop before it in the file with it.
func (s *Store) Commit(ctx context.Context, changes ...allocation.Change) error {
	c := commit{changes: changes, done: make(chan error, 1)}
	select {
	case s.commits <- c:
	case <-s.stopped:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
	return <-c.done // even if ctx ends, so that the caller knows the outcome
}

// Run writes commits until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	defer s.journal.Close()
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

// waiting returns the commits on which other goroutines are blocked.
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
	err := record(s.journal, next, changes)
	if err == nil {
		s.state.Store(&next)
		s.changed.Publish()
	}
	for _, c := range batch {
		c.done <- err
	}
}
