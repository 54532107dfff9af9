package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology"
)

// pairs is a plugin that prefers devices whose numbers differ by two, as GPUs that are joined so. It
// notes each question, and takes a while to answer.
type pairs struct {
	plugins
	mu    sync.Mutex
	asked []string
	takes time.Duration
	hangs bool
	hung  string // a resource whose plugin hangs
}

func newPairs(n int) *pairs {
	p := &pairs{}
	p.preferred = nil
	p.offer("example.com/gpu", n)
	r := p.Inventory().Resources["example.com/gpu"]
	r.Options.Preferred = true
	p.set(r)
	return p
}

func (p *pairs) Preferred(ctx context.Context, q devicemanager.PreferredRequest) ([]string, error) {
	p.mu.Lock()
	p.asked = append(p.asked, fmt.Sprintf("%d of %s", q.Size, strings.Join(q.Available, " ")))
	p.mu.Unlock()
	if p.hangs || p.hung == q.Resource {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	time.Sleep(p.takes)
	for i := range 8 {
		one, other := fmt.Sprint("d", i), fmt.Sprint("d", i+2)
		if slices.Contains(q.Available, one) && slices.Contains(q.Available, other) && q.Size == 2 {
			return []string{one, other}, nil
		}
	}
	return q.Available[len(q.Available)-q.Size:], nil
}

// gpus is what pods have of the GPUs, by their names.
func (d *desk) gpus() string {
	var out []string
	for _, p := range d.store.State().List() {
		for _, set := range p.Containers["main"].Devices() {
			out = append(out, string(p.UID)+"="+strings.Join(set.IDs, ","))
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// Pods that come together get what they would get one by one.
func TestPodsThatComeTogetherGetWhatPluginsPrefer(t *testing.T) {
	// The plugin is there, comes after the pods, or was there and comes back.
	for _, after := range []string{"", "new", "back"} {
		for _, wait := range []time.Duration{0, 2 * time.Minute} {
			if after != "" && wait == 0 {
				continue
			}
			bubble(t, func(t *testing.T, dir string) {
				p := newPairs(8)
				p.takes = 100 * time.Millisecond
				all := p.Inventory()
				switch r := all.Resources["example.com/gpu"]; after {
				case "new":
					p.inventory.Store(&devicemanager.Inventory{})
				case "back":
					r.Connected = false
					p.set(r)
				}
				d := open(t, dir, &p.plugins, func(c *Config) { c.Wait, c.Plugins = wait, p })
				defer d.stop()
				d.together(func() {
					for _, name := range []string{"a", "b", "c", "d"} {
						d.queue.Submit(pod(name, "example.com/gpu=2"), false)
					}
				})
				synctest.Wait()
				if after != "" {
					d.hear()
					p.inventory.Store(&all)
					d.queue.Poke()
				}
				time.Sleep(time.Second)
				said := d.hear()
				slices.Sort(said)
				if got := strings.Join(said, ", "); got != "a Admit, b Admit, c Admit, d Admit" {
					t.Errorf("said %s", got)
				}
				if got := d.gpus(); got != "a=d0,d2 b=d1,d3 c=d4,d6 d=d5,d7" {
					t.Errorf("after %q, wait %v: %s", after, wait, got)
				}
				asked := strings.Join(p.asked, "; ")
				if asked != "2 of d0 d1 d2 d3 d4 d5 d6 d7; 2 of d1 d3 d4 d5 d6 d7; 2 of d4 d5 d6 d7" {
					t.Errorf("asked %s", asked)
				}
			})
		}
	}
}

// A pod that wants something else waits for a slow plugin for a moment, and takes nothing from a pod before it.
// A pod without a place beside one that is asked about is not turned away before the answer.
func TestPodsKeepTheirPlaceWhileAskedAbout(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := newPairs(4)
		p.takes = 3 * time.Second
		d := open(t, dir, &p.plugins, func(c *Config) { c.Plugins = p })
		defer d.stop()
		d.together(func() {
			d.queue.Submit(pod("a", "cpu=2 example.com/gpu=2"), false)
			d.queue.Submit(pod("b", "cpu=3 example.com/gpu=3"), false) // of which there are not so many
			d.queue.Submit(pod("c", "cpu=3"), false)
			d.queue.Submit(pod("d", "cpu=3"), false)
		})
		d.expect()
		time.Sleep(record.Patience)
		d.expect("d Reject: UnexpectedAdmissionError: Allocate failed due to not enough cpus available to "+
			"satisfy request: requested=3, available=2, which is unexpected", "c Admit")
		time.Sleep(2 * time.Second)
		d.expect("a Wait: WaitingForDevicePlugin: no answer to GetPreferredAllocation yet from the "+
			"device plugin of example.com/gpu",
			"b Wait: WaitingForDevicePlugin: a device plugin has not said yet which devices it "+
				"prefers for default/a, which comes before it")
		time.Sleep(2 * time.Second)
		d.expect("b Reject: UnexpectedAdmissionError: Allocate failed due to requested number of "+
			"devices unavailable for example.com/gpu. Requested: 3, Available: 2, which is unexpected",
			"a Admit")
	})
}

// A plugin that took longer than record.Patience stops no pods behind the next one, until it has answered in time.
func TestSlowPluginStopsTheLineOnce(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := newPairs(8)
		d := open(t, dir, &p.plugins, func(c *Config) { c.Plugins = p })
		defer d.stop()
		comes := func(takes time.Duration, gpu, other string) {
			p.takes = takes
			d.together(func() {
				d.queue.Submit(pod(gpu, "example.com/gpu=1"), false)
				d.queue.Submit(pod(other, "cpu=1"), false)
			})
		}
		comes(2*record.Patience, "a", "b")
		d.expect()
		time.Sleep(record.Patience)
		d.expect("b Admit")
		time.Sleep(record.Patience)
		d.expect("a Admit")
		d.queue.Release("a")
		d.queue.Release("b")
		comes(record.Patience/2, "c", "e") // in time, which is not known yet
		d.expect("e Admit")
		time.Sleep(record.Patience / 2)
		d.expect("c Admit")
		comes(record.Patience/2, "f", "g")
		d.expect()
		time.Sleep(record.Patience / 2)
		d.now("f Admit, g Admit")
	})
}

// One deadline is all that a plugin costs which does not answer, however many pods stand in line.
func TestSilentPluginKeepsTheLineOnce(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := newPairs(8)
		p.hangs = true
		var mu sync.Mutex
		var reported []string
		d := open(t, dir, &p.plugins, func(c *Config) {
			c.Plugins = p
			c.Unadvised = func(pod *v1.Pod, key allocation.AskKey, err error) {
				mu.Lock()
				defer mu.Unlock()
				reported = append(reported, fmt.Sprintf("%s %s: %v", pod.Name, key.Container, err))
			}
		})
		defer d.stop()
		d.together(func() {
			for _, name := range []string{"a", "b", "c"} {
				d.queue.Submit(pod(name, "example.com/gpu=2"), false)
			}
		})
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if got := d.gpus(); got != "a=d0,d1 b=d2,d3 c=d4,d5" || len(p.asked) != 1 {
			t.Errorf("%s; asked %q", got, p.asked)
		}
		mu.Lock()
		defer mu.Unlock()
		want := []string{"a main: context deadline exceeded",
			"b main: asked about default/a it said: context deadline exceeded",
			"c main: asked about default/a it said: context deadline exceeded"}
		if !slices.Equal(reported, want) {
			t.Errorf("told %q", reported)
		}
		record, _ := d.queue.Explained(t.Context(), "default", "c")
		if len(record.Remarks.Ignored) != 1 {
			t.Errorf("the record says that %q was ignored", record.Remarks.Ignored)
		}
	})
}

// Who leaves the line, or is released while it is asked about, keeps nobody.
func TestLineGoesOnWithoutThoseWhoLeave(t *testing.T) {
	for name, end := range map[string]func(*Queue, types.UID){
		"leaving": func(q *Queue, uid types.UID) { q.Leaving(uid, false) },
		"release": (*Queue).Release,
	} {
		for _, who := range []string{"a", "b"} {
			bubble(t, func(t *testing.T, dir string) {
				p := newPairs(6)
				p.takes = time.Second / 2
				d := open(t, dir, &p.plugins, func(c *Config) { c.Plugins = p })
				defer d.stop()
				for _, name := range []string{"a", "b", "c"} {
					d.queue.Submit(pod(name, "example.com/gpu=2"), false)
				}
				synctest.Wait()
				end(d.queue, types.UID(who))
				time.Sleep(3 * time.Second)
				other := map[string]string{"a": "b", "b": "a"}[who]
				d.expect(other+" Admit", "c Admit")
				if got := d.gpus(); got != other+"=d0,d2 c=d1,d3" {
					t.Errorf("%s of %s: %s", name, who, got)
				}
			})
		}
	}
}

// When a pod of a line gets its devices, the next one is decided on, and not all that are behind it.
func TestLineMovesUpByOnePod(t *testing.T) {
	const pods = 16
	bubble(t, func(t *testing.T, dir string) {
		p := newPairs(2 * pods)
		p.takes = time.Millisecond
		var decided atomic.Int64
		d := open(t, dir, &p.plugins, func(c *Config) {
			c.Plugins = p
			c.Hardware().Allocatable[v1.ResourcePods] = *resource.NewQuantity(pods, resource.DecimalSI)
			c.Handlers = []decide.Handler{func(decide.Attempt) *decide.Refusal {
				decided.Add(1)
				return nil
			}}
		})
		defer d.stop()
		for i := range pods {
			d.queue.Submit(pod(fmt.Sprint("pod-", i), "example.com/gpu=2"), false)
		}
		time.Sleep(time.Minute)
		if n := len(d.store.State().List()); n != pods {
			t.Errorf("%d of %d pods have devices: %v", n, pods, d.hear())
		}
		if n := decided.Load(); n > 5*pods {
			t.Errorf("%d decisions on %d pods", n, pods)
		}
	})
}

// A pod that is asked about while an earlier one waits has the turn; afterwards the earlier one goes first,
// and neither waits for the other.
func TestPodsDoNotStandBehindEachOther(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p, n := newPairs(4), newNeeds()
		r := p.Inventory().Resources["example.com/gpu"]
		r.Connected = false
		p.set(r)
		d := open(t, dir, &p.plugins, func(c *Config) { c.Plugins, c.Needs = p, n })
		defer d.stop()
		d.queue.Submit(pod("a", "example.com/gpu=2"), false)
		synctest.Wait()
		n.set("b", decide.Lack{Unknown: true})
		d.queue.Submit(pod("b", "example.com/gpu=2"), false)
		synctest.Wait()
		r.Connected = true
		p.set(r)
		d.queue.Poke()
		synctest.Wait()
		n.set("b", decide.Lack{})
		time.Sleep(time.Second)
		if got := d.gpus(); got != "a=d0,d2 b=d1,d3" {
			t.Errorf("%s, and it was said: %v", got, d.hear())
		}
	})
}

// A pod that claims devices is offered what those behind it claim on the same nodes, and they get its
// own in exchange.
func TestClaimsAreExchangedOnTheSameNodes(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := newPairs(8)
		r := p.Inventory().Resources["example.com/gpu"]
		for i, d := range r.Devices {
			d.Nodes = topology.NewNodeSet(topology.NodeID(i / 2 % 2))
		}
		r.Connected = false
		p.set(r)
		d := open(t, dir, &p.plugins, func(c *Config) { c.Plugins = p })
		defer d.stop()
		for _, name := range []string{"a", "b", "c", "d"} {
			d.queue.Submit(pod(name, "example.com/gpu=2"), false)
		}
		synctest.Wait()
		r.Connected = true
		p.set(r)
		d.queue.Poke()
		synctest.Wait()
		if got := d.gpus(); got != "a=d4,d5 b=d6,d7 c=d0,d1 d=d2,d3" {
			t.Error(got)
		}
		if asked := strings.Join(p.asked, "; "); asked != "2 of d0 d1 d4 d5; 2 of d2 d3 d6 d7" {
			t.Errorf("asked %s", asked)
		}
	})
}

// A plugin that does not answer keeps those who want another one's devices for a moment only, also
// behind a pod that wants both; the others stay in line.
func TestSilentPluginKeepsOnlyItsOwnLine(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := newPairs(8)
		nics := p.Inventory().Resources["example.com/gpu"]
		nics.Name = "example.com/nic"
		p.set(nics)
		p.hung = "example.com/gpu"
		d := open(t, dir, &p.plugins, func(c *Config) { c.Plugins = p })
		defer d.stop()
		d.together(func() {
			d.queue.Submit(pod("a", "example.com/gpu=2 example.com/nic=2"), false)
			d.queue.Submit(pod("b", "example.com/nic=2"), false)
			d.queue.Submit(pod("c", "example.com/gpu=2"), false)
			d.queue.Submit(pod("d", "example.com/nic=2"), false)
		})
		time.Sleep(record.Patience - time.Millisecond)
		d.expect()
		time.Sleep(time.Millisecond)
		d.now("b Admit, d Admit")
		time.Sleep(record.SlowAnswer)
		synctest.Wait()
		said := d.hear()
		slices.Sort(said)
		if len(said) != 2 || !strings.HasPrefix(said[0], "a Wait: ") ||
			!strings.HasPrefix(said[1], "c Wait: ") || !strings.HasSuffix(said[1], "default/a, which comes before it") {
			t.Errorf("said %q", said)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if said := d.hear(); len(said) != 2 || !slices.Contains(said, "a Admit") ||
			!slices.Contains(said, "c Admit") {
			t.Errorf("said %q", said)
		}
		asked := strings.Join(p.asked, "; ")
		if asked != "2 of d0 d1 d2 d3 d4 d5 d6 d7; 2 of d2 d3 d4 d5 d6 d7; 2 of d3 d5 d6 d7; "+
			"2 of d0 d1 d6 d7" {
			t.Errorf("asked %s", asked)
		}
	})
}

// A place is its pod's alone, also while the API server is asked what the pod needs.
func TestPlacesAreExclusive(t *testing.T) {
	for range 10 { // whether the answer is seen alone is random
		bubble(t, testExclusivePlace)
	}
}

func testExclusivePlace(t *testing.T, dir string) {
	p, n := newPairs(3), newNeeds()
	p.takes = 100 * time.Millisecond
	n.set("first", lacksKey)
	d := open(t, dir, &p.plugins, func(c *Config) { c.Plugins, c.Needs = p, n })
	defer d.stop()
	d.queue.Submit(pod("first", "cpu=2"), false)
	d.expect("first " + saidMissing)
	d.queue.Submit(pod("asked", "cpu=2 example.com/gpu=2"), false)
	synctest.Wait()
	d.together(func() { // the plugin's answer is seen with both changes
		time.Sleep(200 * time.Millisecond)
		n.set("asked", unknowing)
		d.arrives(n, "first", decide.Lack{})
	})
	synctest.Wait()
	if said := d.hear(); len(said) == 0 || said[0] != "first Admit" {
		t.Fatalf("said %q", said)
	}
	pods := d.queue.admitter.line
	has, first := pods.Find("asked").Has.Pod, d.store.State().Pods["first"]
	if state := pods.Find("asked").State; state != record.Inquiring {
		t.Fatalf("the pod that was asked about is %s", state)
	}
	if allocation.HoldingsOf(has).Overlaps(allocation.HoldingsOf(first)) {
		t.Errorf("first has CPUs %s, and another has %s", first.CPUs(), has.CPUs())
	}
}
