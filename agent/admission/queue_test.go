package admission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/machine"
	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin"
	"github.com/numalet/numalet/topology"
)

// plugins is a device manager made of funcs; calls counts Allocate.
type plugins struct {
	inventory atomic.Pointer[deviceplugin.Inventory]
	allocate  func(ctx context.Context, resource string, ids []string) error
	preferred func(ctx context.Context) ([]string, error)
	advise    func(deviceplugin.PreferredRequest) ([]string, error)
	calls     atomic.Int64
}

func (p *plugins) Inventory() deviceplugin.Inventory {
	if inv := p.inventory.Load(); inv != nil {
		return *inv
	}
	return deviceplugin.Inventory{}
}

func (p *plugins) Preferred(ctx context.Context, req deviceplugin.PreferredRequest) ([]string, error) {
	if p.advise != nil {
		return p.advise(req)
	}
	return p.preferred(ctx)
}

func (p *plugins) Allocate(ctx context.Context, resource string, ids []string) (
	*pluginapi.ContainerAllocateResponse, error) {
	p.calls.Add(1)
	if p.allocate != nil {
		if err := p.allocate(ctx, resource, ids); err != nil {
			return nil, err
		}
	}
	return &pluginapi.ContainerAllocateResponse{Envs: map[string]string{
		"IDS": strings.Join(ids, ","),
	}}, nil
}

func (p *plugins) offer(name string, n int) {
	r := deviceplugin.Resource{Name: name, Connected: true}
	for i := range n {
		r.Devices = append(r.Devices, &deviceplugin.Device{ID: fmt.Sprintf("d%d", i), Healthy: true})
	}
	p.set(r)
}

// set adds a resource to the inventory, or replaces it.
func (p *plugins) set(r deviceplugin.Resource) {
	next := deviceplugin.Inventory{Resources: map[string]deviceplugin.Resource{}}
	maps.Copy(next.Resources, p.Inventory().Resources)
	next.Resources[r.Name] = r
	p.inventory.Store(&next)
}

// desk is a queue at work on a machine of eight CPUs, one of them reserved.
type desk struct {
	t       *testing.T
	queue   *Queue
	plugins *plugins
	store   *allocation.Store
	stop    func()
	// hardware is what the queue is given.
	hardware func() machine.Hardware

	mu       sync.Mutex
	said     []string
	reworded atomic.Int64
}

// quiet tells whether nothing was said since the last time.
func (d *desk) quiet() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.said) == 0
}

// hear takes what was said since the last time.
func (d *desk) hear() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	said := d.said
	d.said = nil
	return said
}

func open(t *testing.T, dir string, p *plugins, change func(*Config)) *desk {
	t.Helper()
	spec := topology.Spec{Nodes: []topology.Node{{ID: 0, MemoryBytes: 16 << 30}}}
	for id := range 8 {
		spec.CPUs = append(spec.CPUs, topology.CPU{ID: id, Core: topology.CoreID(id)})
	}
	m, err := topology.NewMachine(spec)
	if err != nil {
		t.Fatal(err)
	}
	static, err := cpumanager.NewStatic(m, cpuset.New(0), cpumanager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store, err := allocation.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{t: t, plugins: p, store: store}
	hardware := machine.Hardware{
		Machine: m, CPUs: static,
		Allocatable: node.Allocatable(m, node.Reservation{
			MaxPods:  4,
			Reserved: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")},
		}),
	}
	cfg := Config{
		Hardware: func() machine.Hardware { return hardware },
		Policy:   topology.None, Scope: topology.ContainerScope,
		Store: store, Plugins: p, BootID: "boot-1", Wait: 2 * time.Minute,
		Report: func(r Result) {
			line := fmt.Sprintf("%s %s", r.Pod.UID, r.Outcome)
			if r.Reason != "" {
				line += ": " + r.Reason + ": " + r.Message
			}
			if r.Reworded {
				d.reworded.Add(1)
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			d.said = append(d.said, line)
		},
	}
	if change != nil {
		change(&cfg)
	}
	d.hardware = cfg.Hardware
	cfg.Hardware = func() machine.Hardware { // called in each round, by Run
		audit(t, d.queue)
		return d.hardware()
	}
	d.queue = New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- store.Run(ctx) }()
	go func() { done <- d.queue.Run(ctx) }()
	d.stop = func() {
		cancel()
		<-done
		<-done
	}
	return d
}

// expect waits until nothing moves and compares what was said since the last time.
func (d *desk) expect(lines ...string) {
	d.t.Helper()
	synctest.Wait()
	got, want := strings.Join(d.hear(), "\n"), strings.Join(lines, "\n")
	if got != want {
		d.t.Fatalf("said:\n%s\nwant:\n%s", got, want)
	}
}

func pod(uid string, limits string) *v1.Pod {
	p := &v1.Pod{}
	p.UID, p.Namespace, p.Name = types.UID(uid), "default", uid
	list := v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}
	for _, word := range strings.Fields(limits) {
		name, value, _ := strings.Cut(word, "=")
		list[v1.ResourceName(name)] = resource.MustParse(value)
	}
	p.Spec.Containers = []v1.Container{{
		Name: "main", Resources: v1.ResourceRequirements{Limits: list, Requests: list},
	}}
	return p
}

func bubble(t *testing.T, f func(t *testing.T, dir string)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { f(t, dir) })
}

func TestAdmitHoldsAndReleaseGivesBack(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		p.offer("example.com/gpu", 1)
		d := open(t, dir, p, nil)
		defer d.stop()
		d.queue.Submit(pod("a", "cpu=2 example.com/gpu=1"), false)
		d.expect("a Admit")
		held := d.store.State().Pods["a"]
		if got := held.Containers["main"]; got.CPUs.Size() != 2 || got.Devices[0].Answer == nil ||
			held.BootID != "boot-1" {
			t.Errorf("the store holds %+v, want 2 CPUs and an answered device under boot-1", held)
		}
		d.queue.Submit(pod("b", "cpu=1 example.com/gpu=1"), false)
		d.expect("b Reject: UnexpectedAdmissionError: Allocate failed due to requested number of " +
			"devices unavailable for example.com/gpu. Requested: 1, Available: 0, which is unexpected")
		d.queue.Release("a")
		d.queue.Release("b")
		synctest.Wait()
		if n := len(d.store.State().Pods); n != 0 {
			t.Errorf("%d pods in the store after the release, want none", n)
		}
		d.queue.Submit(pod("b", "cpu=1 example.com/gpu=1"), false)
		d.expect("b Admit")
	})
}

func TestWaitsForWhatTerminatingPodsHold(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d := open(t, dir, &plugins{}, nil)
		defer d.stop()
		d.queue.Submit(pod("old", "cpu=6"), false)
		d.expect("old Admit")
		d.queue.Leaving("old")
		d.queue.Submit(pod("new", "cpu=4"), false)
		d.expect("new Wait: WaitingForResources: Allocate failed due to not enough cpus available to " +
			"satisfy request: requested=4, available=1, which is unexpected; pods that are terminating " +
			"hold what is missing")
		d.queue.Release("old")
		d.expect("new Admit")
	})
}

func TestWaitsForThePluginAndGivesUpAtTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		d := open(t, dir, p, nil)
		defer d.stop()
		d.queue.Submit(pod("a", "example.com/gpu=1"), false)
		d.queue.Submit(pod("b", "example.com/nic=2"), false)
		d.queue.Submit(pod("c", "cpu=1"), false)
		d.expect(
			"a Wait: WaitingForDevicePlugin: no device plugin has registered example.com/gpu",
			"b Wait: WaitingForDevicePlugin: no device plugin has registered example.com/nic",
			"c Admit")
		time.Sleep(time.Minute)
		p.offer("example.com/gpu", 1)
		d.queue.Poke()
		d.expect("a Admit")
		time.Sleep(59 * time.Second)
		d.expect()
		time.Sleep(2 * time.Second)
		d.expect("b Reject: OutOfexample.com/nic: Node didn't have enough resource: example.com/nic, " +
			"requested: 2, used: 0, capacity: 0")
	})
}

// Two things are missing, and both may come: neither alone is a reason to reject.
func TestWaitsForAPluginBesideATerminatingPod(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		p.offer("example.com/gpu", 1)
		d := open(t, dir, p, nil)
		defer d.stop()
		d.queue.Submit(pod("old", "example.com/gpu=1"), false)
		d.expect("old Admit")
		d.queue.Leaving("old")
		d.queue.Submit(pod("new", "example.com/gpu=1 example.com/nic=1"), false)
		d.expect("new Wait: WaitingForDevicePlugin: no device plugin has registered example.com/nic")
		p.offer("example.com/nic", 1)
		d.queue.Poke()
		d.expect("new Wait: WaitingForResources: Allocate failed due to requested number of devices " +
			"unavailable for example.com/gpu. Requested: 1, Available: 0, which is unexpected; " +
			"pods that are terminating hold what is missing")
		d.queue.Release("old")
		d.expect("new Admit")
	})
}

func TestNoWaitRejectsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		p.set(deviceplugin.Resource{Name: "example.com/gpu"})
		d := open(t, dir, p, func(c *Config) { c.Wait = 0 })
		defer d.stop()
		d.queue.Submit(pod("a", "example.com/gpu=1"), false)
		d.expect("a Reject: UnexpectedAdmissionError: Allocate failed due to no healthy devices " +
			"present; cannot allocate unhealthy devices example.com/gpu, which is unexpected")
	})
}

// A plugin that hangs holds up its own pods; they keep their claim and are admitted when it answers.
func TestHangingPluginHoldsUpOnlyItsPods(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		var hang atomic.Bool
		hang.Store(true)
		p := &plugins{allocate: func(ctx context.Context, _ string, _ []string) error {
			if !hang.Load() {
				return nil
			}
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			<-ctx.Done()
			return ctx.Err()
		}}
		p.offer("example.com/gpu", 2)
		d := open(t, dir, p, nil)
		defer d.stop()
		d.queue.Submit(pod("a", "cpu=3 example.com/gpu=2"), false)
		d.queue.Submit(pod("b", "cpu=3"), false)
		d.expect("b Admit")
		time.Sleep(2 * time.Second)
		d.expect("a Wait: WaitingForDevicePlugin: no answer yet from the device plugin of " +
			"example.com/gpu")
		time.Sleep(9 * time.Second)
		d.expect("a Wait: WaitingForDevicePlugin: the device plugin of example.com/gpu failed: " +
			"context deadline exceeded")
		if n := d.reworded.Load(); n != 1 {
			t.Errorf("%d outcomes were said in other words only, want 1", n)
		}
		d.queue.Submit(pod("c", "cpu=2"), false)
		d.expect("c Reject: UnexpectedAdmissionError: Allocate failed due to not enough cpus " +
			"available to satisfy request: requested=2, available=1, which is unexpected")
		hang.Store(false)
		time.Sleep(20 * time.Second)
		d.expect("a Admit") // that it is called again is no news
	})
}

func TestPluginThatSaysNoRejectsAndNothingIsTaken(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{allocate: func(context.Context, string, []string) error {
			return errors.New("device is on fire")
		}}
		p.offer("example.com/gpu", 1)
		d := open(t, dir, p, nil)
		defer d.stop()
		d.queue.Submit(pod("a", "cpu=7 example.com/gpu=1"), false)
		d.expect("a Reject: UnexpectedAdmissionError: Allocate failed due to device is on fire, " +
			"which is unexpected")
		d.queue.Submit(pod("b", "cpu=7"), false)
		d.expect("b Admit")
	})
}

func TestCapacity(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d := open(t, dir, &plugins{}, nil)
		defer d.stop()
		d.queue.Submit(pod("a", "cpu=6500m"), false)
		d.queue.Submit(pod("b", "cpu=600m"), false)
		d.queue.Submit(pod("c", "cpu=100m memory=15.5Gi"), false)
		d.queue.Submit(pod("d", "cpu=100m"), false)
		d.queue.Submit(pod("e", "cpu=100m"), false)
		d.queue.Submit(pod("f", "cpu=100m"), false)
		d.queue.Submit(pod("g", "cpu=100m"), false)
		d.expect("a Admit",
			"b Reject: OutOfcpu: Node didn't have enough resource: cpu, requested: 600, used: 6500, capacity: 7000",
			"c Reject: OutOfmemory: Node didn't have enough resource: memory, requested: 16642998272, "+
				"used: 1073741824, capacity: 17179869184",
			"d Admit", "e Admit", "f Admit",
			"g Reject: OutOfpods: Node didn't have enough resource: pods, requested: 1, used: 4, capacity: 4")
	})
}

// A pod withdrawn while its plugin is being asked leaves nothing behind.
func TestReleaseWhileBusy(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{allocate: func(ctx context.Context, _ string, _ []string) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		p.offer("example.com/gpu", 1)
		d := open(t, dir, p, nil)
		defer d.stop()
		d.queue.Submit(pod("a", "cpu=7 example.com/gpu=1"), false)
		synctest.Wait()
		d.queue.Release("a")
		d.queue.Submit(pod("b", "cpu=7"), false)
		synctest.Wait()
		if said := d.hear(); len(said) == 0 || said[len(said)-1] != "b Admit" {
			t.Errorf("said %q, want b admitted in the end", said)
		}
	})
}

// The same uid, deleted and added again before it was released, is decided anew.
func TestSubmittedAgainWhileLeaving(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d := open(t, dir, &plugins{}, nil)
		defer d.stop()
		d.queue.Submit(pod("a", "cpu=2"), false)
		d.expect("a Admit")
		d.queue.Leaving("a")
		d.queue.Submit(pod("a", "cpu=3"), false)
		d.expect()
		d.queue.Release("a")
		d.expect("a Admit")
		if n := d.store.State().Pods["a"].CPUs().Size(); n != 3 {
			t.Errorf("a holds %d CPUs, want 3", n)
		}
	})
}

func TestRestart(t *testing.T) {
	for name, test := range map[string]struct {
		bootID  string
		alive   bool
		away    bool // the plugin
		want    []string
		calls   int64
		waiting bool
	}{
		"same boot, sandbox alive, plugin away": {bootID: "boot-1", alive: true, away: true},
		"same boot, sandbox gone, plugin away":  {bootID: "boot-1", away: true},
		"new boot, plugin there":                {bootID: "boot-2", calls: 1},
		"new boot, plugin late":                 {bootID: "boot-2", away: true, calls: 1, waiting: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dir string) {
				first := &plugins{}
				first.offer("example.com/gpu", 4)
				d := open(t, dir, first, nil)
				d.queue.Submit(pod("other", "cpu=2 example.com/gpu=2"), false)
				d.expect("other Admit")
				d.queue.Submit(pod("a", "cpu=2 example.com/gpu=1"), false)
				d.expect("a Admit")
				d.queue.Release("other")
				synctest.Wait()
				before := d.store.State().Pods["a"]
				d.stop()

				p := &plugins{}
				if !test.away {
					p.offer("example.com/gpu", 4)
				}
				d = open(t, dir, p, func(c *Config) { c.BootID = test.bootID })
				defer d.stop()
				d.queue.Submit(pod("new", "cpu=2"), false)
				d.queue.Submit(pod("a", "cpu=2 example.com/gpu=1"), test.alive)
				synctest.Wait()
				if test.waiting {
					p.offer("example.com/gpu", 4)
					d.queue.Poke()
					synctest.Wait()
				}
				after := d.store.State().Pods["a"]
				if !after.CPUs().Equals(before.CPUs()) ||
					after.Containers["main"].Devices[0].IDs[0] != before.Containers["main"].Devices[0].IDs[0] {
					t.Errorf("before %+v, after %+v: want the same CPUs and devices", before, after)
				}
				if after.BootID != test.bootID || p.calls.Load() != test.calls {
					t.Errorf("boot id %s, %d Allocate calls; want %s, %d",
						after.BootID, p.calls.Load(), test.bootID, test.calls)
				}
				said := strings.Join(d.hear(), "\n")
				if !strings.Contains(said, "a Admit") || !strings.Contains(said, "new Admit") {
					t.Errorf("said:\n%s\nwant both admitted", said)
				}
			})
		})
	}
}

// After a restart the store has pods that no source has desired since: they may be on their way
// out, so a pod that lacks what they hold waits. Once they are desired, they stay.
func TestWaitsForPodsThatOnlyTheStoreKnows(t *testing.T) {
	for name, desired := range map[string]bool{"removed": false, "desired": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dir string) {
				d := open(t, dir, &plugins{}, nil)
				d.queue.Submit(pod("old", "cpu=5"), false)
				d.expect("old Admit")
				d.stop()
				d = open(t, dir, &plugins{}, nil)
				defer d.stop()
				d.queue.Submit(pod("new", "cpu=6"), false)
				synctest.Wait()
				said := d.hear()
				if len(said) != 1 || !strings.HasPrefix(said[0], "new Wait: "+ReasonWaitResources) {
					t.Fatalf("said %q, want that new waits for resources", said)
				}
				if !desired {
					d.queue.Release("old")
					d.expect("new Admit")
					return
				}
				d.queue.Submit(pod("old", "cpu=5"), true)
				synctest.Wait()
				said = d.hear()
				if len(said) != 2 || !strings.HasPrefix(said[0], "new Reject: ") ||
					said[1] != "old Admit" {
					t.Errorf("said %q, want new rejected and old admitted", said)
				}
			})
		})
	}
}

// A commit that fails takes nothing; the pod waits and is admitted when the disk has room again.
func TestFailedCommit(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d := open(t, dir, &plugins{}, nil)
		d.stop() // the store has stopped: commits fail
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- d.queue.Run(ctx) }()
		d.queue.Submit(pod("a", "cpu=2"), false)
		d.expect("a Wait: WaitingForStateFile: record the assignment: the assignment store has stopped")
		time.Sleep(3 * time.Minute)
		d.expect("a Reject: UnexpectedAdmissionError: Allocate failed due to record the assignment: " +
			"the assignment store has stopped, which is unexpected")
		cancel()
		<-done
		if n := len(d.store.State().Pods); n != 0 {
			t.Errorf("%d pods in the store, want none", n)
		}
	})
}

// While a plugin thinks about its advice, the pods behind do not get ahead; and a plugin that does
// not answer is no reason to fail.
func TestAskingKeepsThePlaceInTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{preferred: func(ctx context.Context) ([]string, error) {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		p.offer("example.com/gpu", 2)
		r := p.Inventory().Resources["example.com/gpu"]
		r.Preferred = true
		p.set(r)
		d := open(t, dir, p, nil)
		defer d.stop()
		d.queue.Submit(pod("a", "cpu=4 example.com/gpu=1"), false)
		d.queue.Submit(pod("b", "example.com/gpu=2"), false)
		d.queue.Submit(pod("c", "cpu=3"), false)
		d.expect("b Reject: UnexpectedAdmissionError: Allocate failed due to requested number of "+
			"devices unavailable for example.com/gpu. Requested: 2, Available: 1, which is unexpected",
			"c Admit")
		time.Sleep(2 * time.Second)
		d.expect("a Wait: WaitingForDevicePlugin: no answer yet from the device plugin of " +
			"example.com/gpu")
		time.Sleep(4 * time.Second)
		d.expect("a Admit")
		record, _ := d.queue.Explained("default", "a")
		want := "example.com/gpu of container main: context deadline exceeded"
		if len(record.Ignored) != 1 || record.Ignored[0] != want ||
			!strings.Contains(record.Text(), want) {
			t.Errorf("the record says that %q was ignored, want %q", record.Ignored, want)
		}
	})
}
