package lifecycle

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// initialSync is complete once all pods of the first relist were read.
type initialSync struct {
	complete chan struct{} // closed when the sync is complete

	mu     sync.Mutex
	unread map[types.UID]bool // pods to read; nil before the first relist
}

func newInitialSync() *initialSync { return &initialSync{complete: make(chan struct{})} }

// expect sets the pods to read; only the first call counts.
func (f *initialSync) expect(uids []types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unread == nil {
		f.unread = map[types.UID]bool{}
		for _, uid := range uids {
			f.unread[uid] = true
		}
		f.checkLocked()
	}
}

// read records that a pod was read.
func (f *initialSync) read(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unread[uid] {
		delete(f.unread, uid)
		f.checkLocked()
	}
}

// checkLocked runs at most once with nothing unread: unread is filled once and only shrinks.
func (f *initialSync) checkLocked() {
	if len(f.unread) == 0 {
		close(f.complete)
	}
}
