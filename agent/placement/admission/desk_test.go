package admission

import (
	"context"
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
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/report"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

// plugins is a device manager made of funcs; calls counts Allocate.
type plugins struct {
	inventory atomic.Pointer[devicemanager.Inventory]
	allocate  func(ctx context.Context, resource string, ids []string) error
	preferred func(ctx context.Context) ([]string, error)
	advise    func(devicemanager.PreferredRequest) ([]string, error)
	calls     atomic.Int64
}

func (p *plugins) Inventory() devicemanager.Inventory {
	if inv := p.inventory.Load(); inv != nil {
		return *inv
	}
	return devicemanager.Inventory{}
}

func (p *plugins) Preferred(ctx context.Context,
	req devicemanager.PreferredRequest) ([]string, error) {
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
	r := devicemanager.Resource{Name: name, Connected: true}
	for i := range n {
		r.Devices = append(r.Devices,
			&devicemanager.Device{ID: fmt.Sprintf("d%d", i), Healthy: true})
	}
	p.set(r)
}

// prefers has the resource's plugin have a preference.
func (p *plugins) prefers(name string) {
	r := p.Inventory().Resources[name]
	r.Options.Preferred = true
	p.set(r)
}

// set adds a resource to the inventory, or replaces it.
func (p *plugins) set(r devicemanager.Resource) {
	now := p.Inventory()
	next := devicemanager.Inventory{
		Version: now.Version + 1, Resources: map[string]devicemanager.Resource{},
	}
	maps.Copy(next.Resources, now.Resources)
	r.Generation = next.Version
	next.Resources[r.Name] = r
	p.inventory.Store(&next)
}

// desk is a queue at work on a machine of eight CPUs, one of them reserved.
type desk struct {
	t       *testing.T
	queue   *Queue
	plugins *plugins
	store   *store.Store
	stop    func()
	// hardware is what the queue is given.
	hardware func() machine.Hardware

	// hold keeps Run where it asks for the hardware.
	hold atomic.Pointer[func()]

	mu       sync.Mutex
	said     []string
	reworded atomic.Int64
	released atomic.Int64
}

// quiet reports whether nothing was said since the last time.
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
	m := topologytest.Machine(t, []topology.Node{{ID: 0, MemoryBytes: 16 << 30}}, 8)
	static, err := cpumanager.NewStatic(m, cpuset.New(0), cpumanager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{t: t, plugins: p, store: store}
	hardware := machine.Hardware{
		Machine: m, CPUs: static,
		Allocatable: nodestatus.Allocatable(m, nodestatus.Reservation{
			MaxPods:  4,
			Reserved: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")},
		}),
	}
	cfg := Config{
		Facts: Facts{Hardware: func() machine.Hardware { return hardware }},
		Rules: topology.Rules{Policy: topology.None, Scope: topology.ContainerScope},
		Store: store, Plugins: p, BootID: "boot-1", Wait: 2 * time.Minute,
		Outcomes: Outcomes{Report: func(r report.Result) {
			if r.Outcome == decide.Released {
				d.released.Add(1)
				return
			}
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
		}},
	}
	if change != nil {
		change(&cfg)
	}
	d.hardware = cfg.Hardware
	cfg.Hardware = func() machine.Hardware { // called in each round, by Run
		audit(t, d.queue)
		if hold := d.hold.Load(); hold != nil {
			(*hold)()
		}
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

// together calls f while Run is kept from its inbox: it finds all that f asks for in one round.
func (d *desk) together(f func()) {
	d.t.Helper()
	hold, held := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(held); <-hold })
	d.hold.Store(&once)
	d.queue.Leaving("nobody", false) // wakes it, and changes nothing
	<-held
	f()
	close(hold)
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

// outcomes waits until nothing moves and returns the last outcome of each pod since the last time,
// in words like "big Wait WaitingForResources".
func (d *desk) outcomes() map[string]string {
	d.t.Helper()
	synctest.Wait()
	out := map[string]string{}
	for _, line := range d.hear() {
		words := strings.Fields(strings.ReplaceAll(line, ":", ""))
		if words[1] == string(decide.Wait) {
			out[words[0]] = words[1] + " " + words[2]
			continue
		}
		out[words[0]] = words[1]
	}
	return out
}

// now compares the last outcomes of the pods that something was said of.
func (d *desk) now(want string) {
	d.t.Helper()
	var got []string
	outcomes := d.outcomes()
	for _, pair := range strings.Split(want, ", ") {
		name, _, _ := strings.Cut(pair, " ")
		if said, ok := outcomes[name]; ok {
			got = append(got, name+" "+said)
			delete(outcomes, name)
		}
	}
	if strings.Join(got, ", ") != want && want != "" || len(outcomes) > 0 {
		d.t.Fatalf("said %q and %v, want %q", strings.Join(got, ", "), outcomes, want)
	}
}

// roomy lets more pods in than the desk does.
func roomy(pods int64) func(*Config) {
	return func(c *Config) {
		hardware := c.Hardware()
		hardware.Allocatable = hardware.Allocatable.DeepCopy()
		hardware.Allocatable[v1.ResourcePods] = *resource.NewQuantity(pods, resource.DecimalSI)
		c.Hardware = func() machine.Hardware { return hardware }
	}
}

const (
	forResources = "Wait " + decide.ReasonWaitResources
	forPlugin    = "Wait " + decide.ReasonWaitPlugin
)

func pod(uid, limits string, options ...podtest.Option) *v1.Pod {
	return podtest.New(uid, append(options, podtest.Guaranteed("main "+limits))...)
}

func bubble(t *testing.T, f func(t *testing.T, dir string)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { f(t, dir) })
}
