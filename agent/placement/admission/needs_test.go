package admission

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/admission/decide"
)

// needs is an API server of which is known what each pod lacks.
type needs struct {
	mu      sync.Mutex
	lacks   map[types.UID]decide.Lack
	begun   map[types.UID]bool
	changed chan struct{} // closed by each change, and made anew
	looked  int
	looks   map[types.UID]int // that are under way
	early   []types.UID       // End was called before Look returned
}

func newNeeds() *needs {
	return &needs{lacks: map[types.UID]decide.Lack{}, begun: map[types.UID]bool{},
		looks: map[types.UID]int{}, changed: make(chan struct{})}
}

// set changes what a pod lacks.
func (n *needs) set(pod types.UID, l decide.Lack) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lacks[pod] = l
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *needs) Begin(pod *v1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.begun[pod.UID] = true
}

func (n *needs) End(pod types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.begun, pod)
	if n.looks[pod] > 0 {
		n.early = append(n.early, pod)
	}
}

func (n *needs) Lack(pod *v1.Pod) decide.Lack {
	l, _ := n.now(pod.UID)
	return l
}

func (n *needs) now(pod types.UID) (decide.Lack, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lacks[pod], n.changed
}

func (n *needs) Look(ctx context.Context, pod *v1.Pod) {
	n.looking(pod.UID, 1)
	defer n.looking(pod.UID, -1)
	for ctx.Err() == nil {
		l, changed := n.now(pod.UID)
		if !l.Unknown {
			return
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

func (n *needs) looking(pod types.UID, more int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.looks[pod] += more
	n.looked += max(more, 0)
}

// followed are the pods whose needs are followed, in order.
func (n *needs) followed() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []string
	for _, uid := range slices.Sorted(maps.Keys(n.begun)) {
		out = append(out, string(uid))
	}
	return strings.Join(out, " ")
}

var (
	lacksKey  = decide.Lack{Why: "no key", Reason: "FailedMount"}
	unknowing = decide.Lack{Unknown: true, Why: "no answer", Reason: "FailedMount"}
)

const (
	saidMissing = "Wait: WaitingForObjects: no key; until then the pod is given no CPUs, memory or " +
		"devices"
	saidUnknown = "Wait: WaitingForObjects: no answer; it is not known whether the pod could start; " +
		"until then the pod is given no CPUs, memory or devices"
	saidNever = "Reject: ObjectsMissing: no key; the pod has waited for that for 1m0s"
	allGPUs   = "cpu=2 example.com/gpu=4"
)

// needing opens a desk with four GPUs, where pods wait for a minute and lack what they need.
func needing(t *testing.T, dir string, lacks map[types.UID]decide.Lack) (*desk, *needs) {
	p, n := &plugins{}, newNeeds()
	maps.Copy(n.lacks, lacks)
	p.offer("example.com/gpu", 4)
	return open(t, dir, p, func(c *Config) { c.Wait, c.Needs = time.Minute, n }), n
}

// arrives has it that the pod lacks something else.
func (d *desk) arrives(n *needs, pod types.UID, l decide.Lack) {
	n.set(pod, l)
	d.queue.Poke()
}

// What is not known ends no pod, however long that lasts. When it is known its time begins.
func TestWhatIsNotKnownIsNotMissing(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d, n := needing(t, dir, map[types.UID]decide.Lack{"a": unknowing, "gone": unknowing})
		defer d.stop()
		d.queue.Submit(pod("a", allGPUs), false)
		d.queue.Submit(pod("gone", allGPUs), false)
		d.expect()
		time.Sleep(10 * time.Minute)
		d.expect("gone Wait: WaitingForObjects: the API server has not said yet whether default/a, "+
			"which comes before it, could start", "a "+saidUnknown, "gone "+saidUnknown)
		d.queue.Submit(pod("next", allGPUs), false)
		d.expect("next Admit")
		d.queue.Poke() // without room now, and its time long over
		d.expect()
		d.queue.Release("next")
		d.expect()
		d.arrives(n, "a", lacksKey)
		d.queue.Release("gone")
		d.expect("a " + saidMissing)
		time.Sleep(59 * time.Second)
		d.expect()
		time.Sleep(2 * time.Second)
		d.expect("a " + saidNever)
		if got := n.followed(); got != "" || n.looked != 1 {
			t.Errorf("%q is followed, somebody waited %d times", got, n.looked)
		}
	})
}

// A pod that ends while it is asked what it needs is withdrawn and forgotten.
func TestPodsLeaveWhileTheirNeedsAreAsked(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d, n := needing(t, dir, map[types.UID]decide.Lack{"a": unknowing, "b": unknowing})
		defer d.stop()
		d.queue.Submit(pod("a", allGPUs), false)
		d.queue.Submit(pod("b", allGPUs), false)
		synctest.Wait()
		d.queue.Leaving("a", false)
		d.queue.Release("a")
		d.queue.Release("b")
		d.queue.Submit(pod("next", allGPUs), false)
		d.expect("next Admit")
		if got := n.followed(); got != "next" || d.released.Load() != 2 || len(n.early) > 0 {
			t.Errorf("%q is followed, %d were released", got, d.released.Load())
		}
	})
}
