// Package endings ends pods for the node's sake. Whatever ends one proposes it here: the ending is written to
// a file, and then told. The next run of the agent reads there which pods were about to end.
package endings

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/pods/pod"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/topology/podspec"
)

const (
	// leastGrace is the least time that a pod has to exit after a restart of the agent.
	leastGrace = time.Second
	// writtenWithin bounds how long the end of a pod waits for the disk.
	writtenWithin = time.Second
)

// Scope says how long an ending counts: a pod that is not known to have ended does not run again meanwhile.
type Scope int

// The kinds of Scope.
const (
	// Life: until the life of the pod is over.
	Life Scope = iota
	// Boot: until the machine has booted, too.
	Boot
	// Run: until the agent has restarted, too. It is not written.
	Run
)

// Ending says why and how the node ends a pod.
type Ending struct {
	UID types.UID
	Why pod.Why
	// Grace is how long its containers have to exit; 0: the pod's own grace period.
	Grace time.Duration
	Scope Scope
	// Short is the eviction signal of what was short; "": it is no eviction.
	Short string
}

// Endings ends the pods of a node. Its methods may be called from anywhere, and only Work blocks.
type Endings struct {
	tell    func(uid types.UID, why pod.Why, grace time.Duration)
	news    *mailbox.Box[news]
	record  record
	earlier []entry // of an earlier run, the oldest first

	mu      sync.Mutex // guards pending
	pending map[types.UID]entry
}

// news is an ending, or says that the life of a pod is over.
type news struct {
	Ending
	over bool
}

// Open reads what an earlier run of the agent left in its root, in this boot or before. A file that cannot be
// used is moved aside: nothing is known then beside an error that is files.ErrUnusable. Any other error comes
// without Endings. tell has a pod end; it must not block.
func Open(root, boot string, tell func(uid types.UID, why pod.Why, grace time.Duration)) (*Endings, error) {
	path := filepath.Join(root, File)
	all, err := files.LoadJSON[[]entry](path, maxFile, time.Now())
	if err != nil && !errors.Is(err, files.ErrUnusable) {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(e entry) bool { return e.BootID != "" && e.BootID != boot })
	e := &Endings{tell: tell, news: mailbox.New[news](), pending: map[types.UID]entry{}, earlier: all,
		record: record{path: path, boot: boot, all: slices.Clone(all)}}
	for _, one := range all {
		e.pending[one.UID] = one
	}
	return e, err
}

// Recall adds an ending that another record of an earlier run knows. It is called before all else.
func (e *Endings) Recall(uid types.UID, why pod.Why, until time.Time) {
	if _, known := e.pending[uid]; known {
		return
	}
	one := entryOf(Ending{UID: uid, Why: why}, until)
	e.pending[uid], e.record.all = one, append(e.record.all, one)
}

// End ends a pod. Of a pod that ends already the first reason stays, and the shortest grace period.
func (e *Endings) End(one Ending) { e.news.Put(news{Ending: one}) }

// Over says that the life of a pod is over: what ended it does not count if a pod of that UID begins again.
func (e *Endings) Over(uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.pending, uid)
	e.news.Put(news{Ending: Ending{UID: uid}, over: true})
}

// PendingKill returns why and within which grace period, 0 for the pod's own, an earlier run of the agent was
// about to end a pod; ok is false if it was not, or if the API server knows that the pod has ended.
func (e *Endings) PendingKill(p *v1.Pod) (why pod.Why, grace time.Duration, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	one, ok := e.pending[p.UID]
	if !ok || podspec.Ended(p.Status.Phase) {
		return pod.Why{}, 0, false
	}
	if !one.Until.IsZero() {
		grace = max(leastGrace, time.Until(one.Until))
	}
	return one.why(), grace, true
}

// LastEviction returns the newest eviction of an earlier run whose pod has something left on the node, and the
// signal of what was short.
func (e *Endings) LastEviction(holds func(types.UID) bool) (uid types.UID, short string, ok bool) {
	for _, one := range slices.Backward(e.earlier) {
		if one.Short != "" && holds(one.UID) {
			return one.UID, one.Short, true
		}
	}
	return "", "", false
}

// Work writes and tells endings until ctx ends. It forgets those of pods that are not known any more. A disk
// that cannot be written, or that hangs, does not keep pods from ending.
func (e *Endings) Work(ctx context.Context, known func(types.UID) bool) error {
	writes := mailbox.New[write]()
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() {
		_ = writes.Each(ctx, func(w write) {
			e.record.take(ctx, w.news, known)
			close(w.done)
		})
	})
	for await.On(ctx, e.news.Wake()) {
		w := write{e.news.Take(), make(chan struct{})}
		writes.Put(w)
		select {
		case <-w.done:
		case <-ctx.Done():
			return nil
		case <-time.After(writtenWithin):
			klog.FromContext(ctx).Info("Pods end before it is on the disk that they do", "waited", writtenWithin)
		}
		for _, one := range w.news {
			if !one.over {
				e.tell(one.UID, one.Why, one.Grace)
			}
		}
	}
	return nil
}

// write asks for news to be written. done is closed when they are, or when that failed.
type write struct {
	news []news
	done chan struct{}
}
