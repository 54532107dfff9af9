package health

import (
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/deviceplugin/failure"
	"github.com/numalet/numalet/internal/files"
)

// FailuresFile has what was done about failed devices, in the agent's root.
const FailuresFile = "numalet_device_failures"

// maxFailuresFile bounds the file: failure.State bounds the acts, failure.Act their messages.
const maxFailuresFile = 64 << 20

// FailureBook remembers what was done about failed devices until they are healthy: an agent that was
// killed goes on with what it had begun, and does nothing twice. The methods may be called from
// anywhere.
type FailureBook struct {
	rules  failure.Rules
	record *files.Record[[]failure.Act]  // owned by Failures.Run
	state  atomic.Pointer[failure.State] // its acts are on the disk

	mu   sync.Mutex // guards over
	over sets.Set[types.UID]
}

// OpenFailures reads what an earlier run of the agent left in its root. A file that cannot be used is
// moved aside: the book is empty then beside an error that is files.ErrUnusable. Any other error
// comes without a book.
func OpenFailures(root string, rules failure.Rules) (*FailureBook, error) {
	path := filepath.Join(root, FailuresFile)
	acts, err := files.LoadJSON[[]failure.Act](path, maxFailuresFile, time.Now())
	if err != nil && !errors.Is(err, files.ErrUnusable) {
		return nil, err
	}
	b := &FailureBook{rules: rules, record: files.NewRecord(path, maxFailuresFile, acts),
		over: sets.Set[types.UID]{}}
	b.state.Store(&failure.State{Acts: acts})
	return b, err
}

// Rules are the rules of the settings.
func (b *FailureBook) Rules() failure.Rules { return b.rules }

// Failed tells of each pod that was ended for its devices, and when its grace period is over.
func (b *FailureBook) Failed(tell func(uid types.UID, message string, until time.Time)) {
	for _, a := range b.state.Load().Acts {
		if a.Action == failure.FailPod {
			tell(a.Pod, a.Message, a.Until)
		}
	}
}

// Over says that the life of a pod is over: what was done about its devices counts no more, even if a
// pod of that UID begins again. It never blocks.
func (b *FailureBook) Over(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over.Insert(uid)
}

// ended returns the pods whose lives are over and of which there may be acts; forget says that there
// are none any more.
func (b *FailureBook) ended() sets.Set[types.UID] {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over.Clone()
}

func (b *FailureBook) forget(pods sets.Set[types.UID]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = b.over.Difference(pods)
}

// Condemned returns, by id, the containers of a pod that are to be stopped since a device of theirs
// failed, and why, after the container's name.
func (b *FailureBook) Condemned(pod types.UID) map[string]string {
	var out map[string]string
	for _, a := range b.state.Load().Acts {
		if a.Pod == pod && a.ContainerID != "" {
			if out == nil {
				out = map[string]string{}
			}
			out[a.ContainerID] = "has a failed device"
		}
	}
	return out
}

// Outlooks says of unhealthy devices that containers hold since when they are, as far as this run of the
// agent has seen it, and what was or will be done.
func (b *FailureBook) Outlooks() map[failure.Device]failure.Outlook {
	return b.state.Load().Outlooks(b.rules)
}
