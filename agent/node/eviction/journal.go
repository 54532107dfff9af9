package eviction

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/internal/oneline"
	"github.com/numalet/numalet/topology/podspec"
)

// JournalFile has the evictions, in the agent's root.
const JournalFile = "numalet_evictions"

const (
	// maxJournal bounds the file. Of more evictions than mostKept, whose pods are all still there, the
	// oldest are forgotten.
	maxJournal = 1 << 20
	mostKept   = 256
	// maxMessage bounds the message of one.
	maxMessage = 2 << 10
)

// Journal remembers evictions until their pods are gone: if the agent is killed while a pod ends, the
// next run goes on, and says the same. It is for a crash of the agent, not of the machine, after which
// nothing of the pod runs. The methods may be called from anywhere.
type Journal struct {
	path   string
	before []entry // what an earlier run has left

	writing sync.Mutex // held from a change until the disk has it; it comes before mu

	mu  sync.Mutex // guards all
	all []entry    // as on the disk, the oldest first
}

// entry is an eviction, ordered by time.
type entry struct {
	UID     types.UID `json:"uid"`
	Signal  Signal    `json:"signal,omitempty"`
	Message string    `json:"message"`
	// OwnLimit: the pod exceeded a limit of its own.
	OwnLimit bool `json:"ownLimit,omitempty"`
	// Until is when the pod's grace period ends.
	Until time.Time `json:"until"`
}

// OpenJournal reads what an earlier run of the agent left in its root. A file that cannot be used is
// moved aside: the journal is empty then beside an error that is files.ErrUnusable. Any other error
// comes without a journal.
func OpenJournal(root string) (*Journal, error) {
	path := filepath.Join(root, JournalFile)
	before, err := files.LoadJSON[[]entry](path, maxJournal, time.Now())
	if err != nil && !errors.Is(err, files.ErrUnusable) {
		return nil, err
	}
	return &Journal{path: path, before: before, all: before}, err
}

// PendingKill says how a pod that has not ended was evicted.
type PendingKill struct {
	Message  string
	OwnLimit bool
	Grace    time.Duration // what is left of it
}

// PendingKill returns the eviction of a pod that has not ended; ok is false if it was not evicted.
func (j *Journal) PendingKill(pod *v1.Pod) (d PendingKill, ok bool) {
	if podspec.Ended(pod.Status.Phase) {
		return d, false
	}
	all := j.get()
	i := slices.IndexFunc(all, func(e entry) bool { return e.UID == pod.UID })
	if i < 0 {
		return d, false
	}
	e := all[i]
	return PendingKill{e.Message, e.OwnLimit, max(time.Until(e.Until), leastGrace)}, true
}

// get returns what is on the disk. It does not wait for a write under way.
func (j *Journal) get() []entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.all
}

func (j *Journal) set(all []entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all = all
}

// add writes an eviction, and forgets those of pods that are not known any more. It does not wait until
// the disk has synced, which may be busy with what is evicted. After an error nothing has changed.
func (j *Journal) add(e Eviction, known func(types.UID) bool) error {
	j.writing.Lock()
	defer j.writing.Unlock()
	all := slices.DeleteFunc(slices.Clone(j.get()), func(old entry) bool { return !known(old.UID) })
	all = append(all, entry{e.Pod.UID, e.Signal, oneline.Head(e.Message, maxMessage), e.OwnLimit,
		time.Now().Add(e.Grace)})
	all = all[max(0, len(all)-mostKept):]
	raw, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if err := files.Replace(j.path, raw); err != nil {
		return err
	}
	j.set(all)
	return nil
}

// last returns the newest eviction of an earlier run that has something left on the node.
func (j *Journal) last(holds func(types.UID) bool) (r returning, ok bool) {
	for _, e := range slices.Backward(j.before) {
		if holds(e.UID) {
			return returning{uid: e.UID, signal: e.Signal, until: time.Now().Add(patience)}, true
		}
	}
	return r, false
}
