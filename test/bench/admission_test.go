package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/machine"
	agentnode "github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/placement/admission"
	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/report"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
)

// The node of these measurements.
const (
	admissionNodes   = 8
	admissionCPUs    = 256
	admissionDevices = 120
	heldPods         = 60  // that hold something while others are admitted
	waitingPods      = 100 // that wait for something else while causes clear
	wakeDevices      = "example.com/wake"
)

// BenchmarkAdmissions measures admission without the plugins, which answer at once: the queue, all
// three managers under restricted, and the state file on disk. Pods with two exclusive CPUs, memory
// and a device on 8 NUMA nodes are admitted and released again, beside 60 that hold the same. An
// admission costs one fsync, or a share of one; a release costs none.
func BenchmarkAdmissions(b *testing.B) {
	for _, atOnce := range []int{1, 16} {
		b.Run(fmt.Sprintf("at-once=%d", atOnce), func(b *testing.B) {
			n := newAdmissions(b, nil)
			for range heldPods {
				n.admit(1)
			}
			written, version := writtenBytes(b), n.store.State().Version
			var took times
			for b.Loop() {
				took = append(took, n.admit(atOnce)...)
				for i := range atOnce {
					n.queue.Release(uidOf(n.number - i))
				}
			}
			count := float64(len(took))
			writes := float64(n.store.State().Version-version) / count
			b.ReportMetric(count/b.Elapsed().Seconds(), "admissions/s")
			b.ReportMetric(writes, "commits/admission")
			b.ReportMetric(float64(writtenBytes(b)-written)/count, "B/admission")
			took.report(b, "")
		})
	}
}

// BenchmarkWakes measures the time from the end of the cause to wait until the pod is admitted,
// with its assignment on disk: the real queue, managers and state file, beside 100 pods that wait
// for something else.
func BenchmarkWakes(b *testing.B) {
	for _, cause := range []struct {
		name string
		// begin makes the next pod wait; what it returns clears that.
		begin func(n *admissions, p *movingPlugins) (clears func())
	}{
		{"plugin-registers", func(n *admissions, p *movingPlugins) func() {
			p.offer(n)
			return func() { p.offer(n, two(true)) }
		}},
		{"device-healthy", func(n *admissions, p *movingPlugins) func() {
			p.offer(n, two(false))
			return func() { p.offer(n, two(true)) }
		}},
		{"pod-removed", func(n *admissions, p *movingPlugins) func() {
			p.offer(n, two(true))
			n.submit(wakeDevices, decide.Admit)
			holder := uidOf(n.number)
			n.queue.Leaving(holder, false)
			return func() { n.queue.Release(holder) }
		}},
	} {
		b.Run("cause="+cause.name, func(b *testing.B) {
			p := &movingPlugins{}
			p.now.Store(&devicemanager.Inventory{})
			n := newAdmissions(b, p)
			for range waitingPods {
				n.submit("example.com/never", decide.Wait)
			}
			var took times
			for b.Loop() {
				for len(n.store.State().Pods) > 0 { // what was released is still recorded
					time.Sleep(100 * time.Microsecond)
				}
				clears := cause.begin(n, p)
				n.submit(wakeDevices, decide.Wait)
				began := time.Now()
				clears()
				n.await(decide.Admit)
				took = append(took, time.Since(began))
				n.queue.Release(uidOf(n.number))
			}
			b.ReportMetric(0, "ns/op") // has the preparation in it
			took.report(b, "")
		})
	}
}

// admissions is a queue that admits pods, and what is needed to do so.
type admissions struct {
	b        *testing.B
	ctx      context.Context
	queue    *admission.Queue
	store    *store.Store
	outcomes chan report.Result
	number   int // of the last pod
}

// newAdmissions without plugins makes one whose devices are spread over the nodes.
func newAdmissions(b *testing.B, plugins admission.Plugins) *admissions {
	m := invent(b, admissionNodes, admissionCPUs)
	cpus, err := cpumanager.NewStatic(m, cpuset.New(0, admissionCPUs/2), cpumanager.Options{})
	must(b, err)
	mem, err := memory.New(m, memory.Amounts{0: {v1.ResourceMemory: 1 << 30}})
	must(b, err)
	reservation := agentnode.Reservation{MaxPods: 1000}
	hardware := machine.Hardware{
		Machine: m, CPUs: cpus, Memory: mem, Reservation: reservation,
		Allocatable: agentnode.Allocatable(m, reservation),
	}
	if plugins == nil {
		plugins = promptPlugins{inventoryOf(m)}
	}
	store, err := store.Open(b.TempDir())
	must(b, err)
	n := &admissions{
		b: b, ctx: limited(b), store: store, outcomes: make(chan report.Result, 1000),
	}
	n.queue = admission.New(admission.Config{
		Facts: admission.Facts{Hardware: func() machine.Hardware { return hardware }},
		Rules: topology.Rules{Policy: topology.Restricted},
		Store: store, Plugins: plugins,
		BootID: "bench", Wait: 10 * time.Minute,
		Outcomes: admission.Outcomes{Report: func(r report.Result) { n.outcomes <- r }},
	})
	runs(b, store.Run)
	runs(b, n.queue.Run)
	return n
}

// admit submits so many pods at once and returns how long each took to be admitted.
func (n *admissions) admit(pods int) times {
	var took times
	begin := time.Now()
	for range pods {
		n.number++
		n.queue.Submit(benchPod(n.number), false)
	}
	for len(took) < pods {
		n.await(decide.Admit)
		took = append(took, time.Since(begin))
	}
	return took
}

// submit adds a pod with the two devices of a resource and waits for what is said of it.
func (n *admissions) submit(name v1.ResourceName, want decide.Outcome) {
	n.number++
	pod := benchPod(n.number)
	amounts := pod.Spec.Containers[0].Resources.Limits
	delete(amounts, benchResource)
	amounts[name] = resource.MustParse("2")
	amounts[v1.ResourceCPU] = resource.MustParse("1")
	n.queue.Submit(pod, false)
	n.await(want)
}

// await passes over what is said in between, but for a rejection.
func (n *admissions) await(want decide.Outcome) {
	for {
		select {
		case r := <-n.outcomes:
			switch r.Outcome {
			case want:
				return
			case decide.Reject:
				n.b.Fatalf("pod %s was rejected: %s: %s", r.Pod.Name, r.Reason, r.Message)
			}
		case <-n.ctx.Done():
			n.b.Fatalf("waited for %s in vain", want)
		}
	}
}

func uidOf(number int) types.UID { return types.UID(fmt.Sprintf("bench-%08d", number)) }

func benchPod(number int) *v1.Pod {
	return podtest.New(string(uidOf(number)), podtest.Guaranteed("main cpu=2 "+benchResource+"=1"))
}

// promptPlugins answer at once and prefer nothing.
type promptPlugins struct{ inventory devicemanager.Inventory }

func inventoryOf(m *topology.Machine) devicemanager.Inventory {
	r := devicemanager.Resource{Name: benchResource, Connected: true}
	nodes := m.NodeSet().IDs()
	for i := range admissionDevices {
		r.Devices = append(r.Devices, &devicemanager.Device{
			ID: fmt.Sprintf("device-%d", i), Healthy: true,
			Nodes: topology.NewNodeSet(nodes[i*len(nodes)/admissionDevices]),
		})
	}
	r.Capacity, r.Allocatable = admissionDevices, admissionDevices
	return devicemanager.Inventory{
		Version: 1, Resources: map[string]devicemanager.Resource{benchResource: r},
	}
}

func (p promptPlugins) Inventory() devicemanager.Inventory { return p.inventory }

func (p promptPlugins) Preferred(context.Context, devicemanager.PreferredRequest) ([]string, error) {
	return nil, errors.New("no preference")
}

func (p promptPlugins) Allocate(context.Context, string, []string) (
	*pluginapi.ContainerAllocateResponse, error) {
	return answer(), nil
}

// movingPlugins answer at once, with an inventory that changes.
type movingPlugins struct {
	promptPlugins
	now     atomic.Pointer[devicemanager.Inventory]
	version atomic.Uint64
}

// offer replaces all resources by these, and tells the queue.
func (p *movingPlugins) offer(n *admissions, resources ...devicemanager.Resource) {
	next := devicemanager.Inventory{
		Version: p.version.Add(1), Resources: map[string]devicemanager.Resource{},
	}
	for _, r := range resources {
		r.Generation = next.Version // another list
		next.Resources[r.Name] = r
	}
	p.now.Store(&next)
	n.queue.Poke()
}

func (p *movingPlugins) Inventory() devicemanager.Inventory { return *p.now.Load() }

// two returns a resource with two devices; the second one may be unhealthy.
func two(healthy bool) devicemanager.Resource {
	return devicemanager.Resource{
		Name: wakeDevices, Connected: true,
		Devices: []*devicemanager.Device{{ID: "0", Healthy: true}, {ID: "1", Healthy: healthy}},
	}
}

// writtenBytes returns how many bytes this process has passed to write(2) so far (proc_pid_io(5),
// wchar).
func writtenBytes(b *testing.B) int64 {
	raw, err := os.ReadFile("/proc/self/io")
	must(b, err)
	_, rest, _ := strings.Cut(string(raw), "wchar: ")
	text, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseInt(text, 10, 64)
	must(b, err)
	return n
}
