package claims

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/internal/await"
)

// releases are the pods that need their claims no longer, and those that are being prepared.
type releases struct {
	mu    sync.Mutex // guards the fields below
	left  sets.Set[types.UID]
	begun map[types.UID]*preparation
	news  chan struct{} // closed when something is another than it was
	wake  chan struct{} // capacity 1
}

// preparation is the claims of a pod being prepared.
type preparation struct {
	count    int
	released bool
}

func newReleases() *releases {
	return &releases{left: sets.New[types.UID](), begun: map[types.UID]*preparation{},
		news: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// enter begins a preparation for a pod; leave ends it. released reports whether the pod was released
// since: then nothing may be begun for it.
func (p *releases) enter(uid types.UID) (released func() bool, leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := p.begun[uid]
	if own == nil || own.released { // a new life of the pod
		own = &preparation{}
		p.begun[uid] = own
	}
	own.count++
	return func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return own.released
		}, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if own.count--; own.count == 0 && p.begun[uid] == own {
				delete(p.begun, uid)
			}
			if own.released { // what was begun meanwhile is to be undone
				await.Wake(p.wake)
			}
			p.tellLocked()
		}
}

// preparing reports whether a preparation of the pod has not ended.
func (p *releases) preparing(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.begun[uid] != nil
}

// release puts a pod among those that need nothing any more.
func (p *releases) release(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if own := p.begun[uid]; own != nil {
		own.released = true
	}
	p.left.Insert(uid)
	await.Wake(p.wake)
}

// take returns the pods that were released since.
func (p *releases) take() []types.UID {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.left.UnsortedList()
	p.left.Clear()
	return all
}

// putBack is release for pods whose release could not be recorded, without a wake-up.
func (p *releases) putBack(all []types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left.Insert(all...)
}

// tell wakes the callers that wait for news.
func (p *releases) tell() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tellLocked()
}

func (p *releases) tellLocked() {
	close(p.news)
	p.news = make(chan struct{})
}

// next returns a channel that is closed with the next news.
func (p *releases) next() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.news
}
