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
func needing(t *testing.T, dir string, lacks map[types.UID]decide.Lack, change func(*Config)) (
	*desk, *needs) {
	p, n := &plugins{}, newNeeds()
	maps.Copy(n.lacks, lacks)
	p.offer("example.com/gpu", 4)
	return open(t, dir, p, func(c *Config) {
		c.Wait, c.Needs = time.Minute, n
		if change != nil {
			change(c)
		}
	}), n
}

// arrives has it that the pod lacks something else.
func (d *desk) arrives(n *needs, pod types.UID, l decide.Lack) {
	n.set(pod, l)
	d.queue.Poke()
}

// A pod that could not start holds nothing: others go before it. It is admitted when it could, and
// there is room; when its time is over it is rejected.
func TestPodsWaitForWhatTheyNeedWithoutAnything(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d, n := needing(t, dir, map[types.UID]decide.Lack{"a": lacksKey, "never": lacksKey,
			"full": {Why: "no slot", Reason: "FailedMount", Limit: "the node is full"}}, nil)
		defer d.stop()
		d.queue.Submit(pod("a", allGPUs), false)
		d.expect("a " + saidMissing)
		d.queue.Submit(pod("next", allGPUs), false)
		d.expect("next Admit")
		d.queue.Poke()
		d.expect()
		d.queue.Leaving("next", false)
		d.queue.Release("next")
		d.expect()
		d.arrives(n, "a", decide.Lack{Why: "another", Reason: "FailedMount"})
		d.expect("a " + strings.Replace(saidMissing, "no key", "another", 1))
		d.arrives(n, "a", decide.Lack{})
		d.expect("a Admit")
		d.queue.Leaving("a", false)
		d.queue.Release("a")
		d.queue.Submit(pod("never", allGPUs), false)
		d.expect("never " + saidMissing)
		time.Sleep(59 * time.Second)
		d.expect()
		time.Sleep(2 * time.Second)
		d.expect("never " + saidNever)
		d.queue.Submit(pod("full", allGPUs), false)
		d.expect("full " + strings.Replace(saidMissing, "no key", "no slot", 1))
		time.Sleep(61 * time.Second)
		d.expect("full Reject: VolumeAttachmentLimitExceeded: the node is full")
		if got := n.followed(); got != "" || n.looked != 0 {
			t.Errorf("%q is followed, %d times somebody waited for what was known", got, n.looked)
		}
	})
}

// Others went before a pod that could not start, so that it waits for room when it could; one that
// has no place when it comes is rejected, whatever it lacks.
func TestPodsThatStoodAsideWaitForRoom(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d, n := needing(t, dir, map[types.UID]decide.Lack{"a": lacksKey, "late": lacksKey}, nil)
		defer d.stop()
		d.queue.Submit(pod("a", allGPUs), false)
		d.queue.Submit(pod("b", allGPUs), false)
		d.expect("a "+saidMissing, "b Admit")
		d.queue.Submit(pod("late", allGPUs), false)
		d.expect("late Reject: UnexpectedAdmissionError: Allocate failed due to requested number " +
			"of devices unavailable for example.com/gpu. Requested: 4, Available: 0, which is " +
			"unexpected")
		d.arrives(n, "a", decide.Lack{})
		d.expect("a Wait: WaitingForResources: Allocate failed due to requested number of devices " +
			"unavailable for example.com/gpu. Requested: 4, Available: 0, which is unexpected; " +
			"other pods came first while it could not start")
		d.queue.Release("b")
		d.expect("a Admit")
		d.queue.Release("a")
		d.queue.Release("late")
		d.expect()
		if got := n.followed(); got != "" {
			t.Errorf("%q is followed", got)
		}
	})
}

// Only pods wait that would be given something of their own, and that were not given it before.
func TestPodsThatDoNotWaitForWhatTheyNeed(t *testing.T) {
	lacks := map[types.UID]decide.Lack{"plain": lacksKey, "runs": lacksKey, "was": lacksKey, "gpu": lacksKey}
	bubble(t, func(t *testing.T, dir string) {
		d, n := needing(t, dir, lacks, nil)
		d.queue.Submit(pod("plain", "cpu=1500m"), false)
		d.queue.Submit(pod("runs", allGPUs), true)
		d.expect("plain Admit", "runs Admit")
		if got := n.followed(); got != "" {
			t.Errorf("%q is followed", got)
		}
		d.queue.Release("runs")
		d.expect()
		n.set("was", decide.Lack{})
		d.queue.Submit(pod("was", allGPUs), false)
		d.expect("was Admit")
		n.set("was", lacksKey)
		d.queue.Poke()
		d.expect()
		d.stop()
		again, n := needing(t, dir, lacks, func(c *Config) { c.BootID = "boot-2" })
		again.queue.Submit(pod("was", allGPUs), false)
		again.expect("was Admit")
		if got := n.followed(); got != "" {
			t.Errorf("%q is followed", got)
		}
		again.stop()
	})
	bubble(t, func(t *testing.T, dir string) {
		d, _ := needing(t, dir, lacks, func(c *Config) { c.Wait = 0 })
		defer d.stop()
		d.queue.Submit(pod("gpu", allGPUs), false)
		d.expect("gpu Admit")
	})
}

// While the API server is asked, a pod keeps its place before those that came later.
func TestPodsKeepTheirPlaceWhileTheirNeedsAreAsked(t *testing.T) {
	for lack, want := range map[decide.Lack][]string{
		{}: {"b Reject: UnexpectedAdmissionError: Allocate failed due to requested number of devices " +
			"unavailable for example.com/gpu. Requested: 4, Available: 0, which is unexpected",
			"a Admit"},
		lacksKey: {"a " + saidMissing, "b Admit"},
	} {
		bubble(t, func(t *testing.T, dir string) {
			d, n := needing(t, dir, map[types.UID]decide.Lack{"a": unknowing}, nil)
			defer d.stop()
			d.queue.Submit(pod("a", allGPUs), false)
			d.queue.Submit(pod("b", allGPUs), false)
			d.queue.Submit(pod("other", "cpu=1500m"), false)
			d.expect("other Admit")
			d.arrives(n, "a", lack)
			d.expect(want...)
		})
	}
}

// What is not known ends no pod, however long that lasts. When it is known its time begins.
func TestWhatIsNotKnownIsNotMissing(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d, n := needing(t, dir, map[types.UID]decide.Lack{"a": unknowing, "gone": unknowing}, nil)
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
		d, n := needing(t, dir, map[types.UID]decide.Lack{"a": unknowing, "b": unknowing}, nil)
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

// A pod of a controller whose pods were rejected is held back, and goes on as soon as it could start.
func TestPodsHeldBackForWhatTheyNeed(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d, n := needing(t, dir, map[types.UID]decide.Lack{"a": lacksKey, "b": lacksKey}, nil)
		defer d.stop()
		for i, name := range []string{"a", "b"} {
			d.queue.Submit(owned(name, allGPUs, "set"), false)
			time.Sleep(time.Duration(i+1) * time.Second)
		}
		d.expect("a "+saidMissing, "b "+saidMissing)
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if said := d.hear(); len(said) != 2 || said[0] != "a "+saidNever ||
			!strings.HasPrefix(said[1], "b Wait: WaitingAfterRejections: ObjectsMissing: no key; ") {
			t.Errorf("said %q", said)
		}
		d.arrives(n, "b", decide.Lack{})
		d.expect("b Admit")
	})
}
