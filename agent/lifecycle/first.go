package lifecycle

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// firstPicture is complete when all pods that the first relist found were read.
type firstPicture struct {
	complete chan struct{} // closed when it is

	mu     sync.Mutex
	unread map[types.UID]bool // what it lacks; nil before the first relist
}

func newFirstPicture() *firstPicture { return &firstPicture{complete: make(chan struct{})} }

// lacks says which pods are to be read; only the first time counts.
func (f *firstPicture) lacks(uids []types.UID) {
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

// read says that a pod was.
func (f *firstPicture) read(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unread[uid] {
		delete(f.unread, uid)
		f.checkLocked()
	}
}

// checkLocked runs at most once with nothing unread: unread is filled once and only shrinks.
func (f *firstPicture) checkLocked() {
	if len(f.unread) == 0 {
		close(f.complete)
	}
}
