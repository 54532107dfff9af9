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

	"github.com/numalet/numalet/agent/podstatus"
)

// maxBehind is how many events a watcher may be behind; one that is slower is let go.
const maxBehind = 100

// feed has the pods as they were last told of, and those who watch them. Its methods may be called
// from anywhere, those about one pod one after the other.
type feed struct {
	mu       sync.Mutex // guards the fields below
	heard    bool       // every source of pods: only then it is known which pods there are
	pods     map[types.UID]*v1.Pod
	watchers map[*watcher]bool
	dropped  *metrics.Counter // events that no watcher was let have
}

// watcher gets events until it is too slow: then the channel is closed.
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

// wrote takes a change. Who watches is never waited for.
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
		return // nothing that came from a pod fails to be written as one
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

// list is every pod, by UID; false: it is not known yet which there are.
func (f *feed) list() ([]*v1.Pod, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.listLocked(), f.heard
}

func (f *feed) listLocked() []*v1.Pod {
	return slices.SortedFunc(maps.Values(f.pods),
		func(a, b *v1.Pod) int { return cmp.Compare(a.UID, b.UID) })
}

// watch is list, and what changes of it from then on.
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
