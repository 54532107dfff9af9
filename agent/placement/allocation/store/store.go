package store

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/internal/mailbox"
)

// ReasonQuarantined is the reason of the event about an assignment file that could not be used and
// was moved aside.
const ReasonQuarantined = "StateFileQuarantined"

// Store owns the assignments. Its methods are safe to call from anywhere.
type Store struct {
	journal *files.Journal // of who has the group's turn
	group   *files.Group[[]allocation.Change]
	state   atomic.Pointer[allocation.State]
	changed mailbox.Topic
}

// ErrStopped is the error of Commit after Run has returned.
var ErrStopped = errors.New("the assignment store has stopped")

// Open loads the state file in dir. If the file cannot be used, Open moves it aside and returns an
// empty store with an error that says so. With any other error there is no store.
func Open(dir string) (*Store, error) {
	s := &Store{
		journal: newJournal(filepath.Join(dir, FileName)), group: files.NewGroup[[]allocation.Change](),
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
// survive, and the drop before it in the file with it. If ctx ends during the write, Commit returns its outcome.
func (s *Store) Commit(ctx context.Context, changes ...allocation.Change) error {
	err := s.group.Write(ctx, changes, s.write)
	if errors.Is(err, files.ErrClosed) {
		return ErrStopped
	}
	return err
}

// Run waits until ctx ends, and for the write in progress. Then there are no more commits.
func (s *Store) Run(ctx context.Context) error {
	<-ctx.Done()
	s.group.Close()
	s.journal.Close()
	return nil
}

func (s *Store) write(all [][]allocation.Change) error {
	changes := slices.Concat(all...)
	next := s.State().With(changes)
	if err := record(s.journal, next, changes); err != nil {
		return err
	}
	s.state.Store(&next)
	s.changed.Publish()
	return nil
}
