package lifecycle

import (
	"context"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/cri"
)

// fake is a runtime in a map. refresh, if set, is called before each read and may block it or make
// it fail.
type fake struct {
	mu      sync.Mutex
	pods    map[types.UID]cri.Pod
	lists   int
	reads   map[types.UID]int
	streams int
	emit    func(cri.Event)
	end     chan error // ends the stream
	listErr error
	refresh func(ctx context.Context, uid types.UID) error
	noEvent bool
}

func newFake() *fake {
	return &fake{
		pods:  map[types.UID]cri.Pod{},
		reads: map[types.UID]int{},
		end:   make(chan error),
	}
}

func (f *fake) set(uid types.UID, states ...cri.ContainerState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pod := cri.Pod{UID: uid, Sandboxes: []cri.Sandbox{{ID: "s-" + string(uid), Ready: true}}}
	for i, st := range states {
		id := string(uid) + string(rune('a'+i))
		pod.Containers = append(pod.Containers, cri.Container{ID: id, Name: id, State: st})
	}
	f.pods[uid] = pod
}

func (f *fake) remove(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.pods, uid)
}

func (f *fake) counts() (lists, reads, streams int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.reads {
		reads += n
	}
	return f.lists, reads, f.streams
}

func (f *fake) truth(uid types.UID) cri.Pod {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pods[uid]
}

func (f *fake) Pods(context.Context) ([]cri.Pod, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists++
	if f.listErr != nil {
		return nil, f.listErr
	}
	var out []cri.Pod
	for _, p := range f.pods {
		p.ReadAt = time.Now()
		out = append(out, p)
	}
	return out, nil
}

func (f *fake) Refresh(ctx context.Context, last cri.Pod) (cri.Pod, error) {
	pod := f.look(last.UID)
	if f.refresh != nil {
		if err := f.refresh(ctx, last.UID); err != nil {
			return cri.Pod{}, err
		}
	}
	return pod, nil
}

func (f *fake) Recheck(ctx context.Context, last cri.Pod, _ cri.Made) (cri.Pod, error) {
	now, err := f.Refresh(ctx, last)
	last.ReadAt, last.Containers = now.ReadAt, now.Containers
	return last, err
}

// look returns what the runtime has when a read begins.
func (f *fake) look(uid types.UID) cri.Pod {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads[uid]++
	pod := f.pods[uid]
	pod.UID, pod.ReadAt = uid, time.Now()
	return pod
}

func (f *fake) Events(ctx context.Context, connected func(), fn func(cri.Event)) error {
	if !f.listen(fn) {
		return cri.ErrNoEvents
	}
	connected()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-f.end:
		return err
	}
}

func (f *fake) listen(fn func(cri.Event)) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.streams++
	f.emit = fn
	return !f.noEvent
}

func (f *fake) event(uid types.UID, kind cri.EventType) {
	f.emitter()(cri.Event{PodUID: uid, ContainerID: string(uid) + "a", Type: kind})
}

func (f *fake) emitter() func(cri.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.emit
}

// observe runs a PLEG on f until the test or synctest bubble ends.
func observe(t *testing.T, f *fake, cfg Config) (o *PLEG, stop func()) {
	t.Helper()
	cfg.Client = f
	o, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- o.Run(ctx) }()
	return o, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

// received drains the changes that are ready.
func received(o *PLEG) map[types.UID]int {
	out := map[types.UID]int{}
	for {
		select {
		case uid := <-o.Changes():
			out[uid]++
		case <-time.After(time.Millisecond):
			return out
		}
	}
}
