package podsapi

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/numalet/numalet/agent/pods/podstatus"
)

// maxBehind bounds how many events a watcher may be behind; a slower one is disconnected.
const maxBehind = 100

// feed holds the pods as last reported, and the watchers. Its methods may be called from any
// goroutine; calls about one pod must not overlap.
type feed struct {
	mu       sync.Mutex // guards the fields below
	heard    bool       // every source of pods was heard, so that all pods are known
	pods     map[types.UID]*v1.Pod
	watchers map[*watcher]bool
	dropped  *metrics.Counter // events that no watcher received
}

// watcher receives events until it is too slow; then the channel is closed.
type watcher struct {
	events chan *podsv1alpha1.WatchPodsEvent
}

func newFeed(dropped *metrics.Counter) *feed {
	return &feed{pods: map[types.UID]*v1.Pod{}, watchers: map[*watcher]bool{}, dropped: dropped}
}

func (f *feed) hear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard = true
}

// wrote records a change. It never waits for watchers.
func (f *feed) wrote(c podstatus.Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	uid := c.Pod.UID
	_, known := f.pods[uid]
	kind := podsv1alpha1.EventType_MODIFIED
	pod := *c.Pod
	pod.Status = c.After
	switch {
	case c.Ends() && !known:
		return
	case c.Ends():
		kind = podsv1alpha1.EventType_DELETED
		pod.Status = c.Before
		delete(f.pods, uid)
	default:
		if !known {
			kind = podsv1alpha1.EventType_ADDED
		}
		f.pods[uid] = &pod
	}
	if len(f.watchers) > 0 {
		f.publishLocked(kind, &pod)
	}
}

func (f *feed) publishLocked(kind podsv1alpha1.EventType, pod *v1.Pod) {
	raw, err := pod.Marshal()
	if err != nil {
		return // every pod can be encoded
	}
	e := &podsv1alpha1.WatchPodsEvent{Type: kind, Pod: raw}
	for w := range f.watchers {
		select {
		case w.events <- e:
		default:
			f.dropped.Inc()
			delete(f.watchers, w)
			close(w.events)
		}
	}
}

// list returns all pods by UID; false: not all pods are known yet.
func (f *feed) list() ([]*v1.Pod, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.listLocked(), f.heard
}

func (f *feed) listLocked() []*v1.Pod {
	return slices.SortedFunc(maps.Values(f.pods),
		func(a, b *v1.Pod) int { return cmp.Compare(a.UID, b.UID) })
}

// watch returns list and a watcher of the changes after it.
func (f *feed) watch() ([]*v1.Pod, *watcher, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.heard {
		return nil, nil, false
	}
	w := &watcher{make(chan *podsv1alpha1.WatchPodsEvent, maxBehind)}
	f.watchers[w] = true
	return f.listLocked(), w, true
}

func (f *feed) leave(w *watcher) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.watchers, w)
}
