package admission

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/line"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/admission/report"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

const crowd = 2000

// roomOf is a machine with room for many pods.
func roomOf(b *testing.B, pods int) machine.Hardware { return roomWith(b, pods, 128) }

// roomWith is a machine with room for many pods and that many CPUs on two NUMA nodes, one of them reserved.
func roomWith(b *testing.B, pods, cpus int) machine.Hardware {
	nodes := []topology.Node{{ID: 0, MemoryBytes: 1 << 42}, {ID: 1, MemoryBytes: 1 << 42}}
	m := topologytest.Machine(b, nodes, cpus, func(c *topology.CPU) {
		c.Node, c.Socket = topology.NodeID(c.ID/(cpus/2)), topology.SocketID(c.ID/(cpus/2))
	})
	static, err := cpumanager.NewStatic(m, cpuset.New(0), cpumanager.Options{})
	if err != nil {
		b.Fatal(err)
	}
	h := machine.Hardware{
		Machine: m, CPUs: static,
		Allocatable: nodestatus.Allocatable(m, nodestatus.Reservation{MaxPods: int64(4 * pods)}),
	}
	h.Allocatable[v1.ResourceCPU] = *resource.NewQuantity(int64(4*pods), resource.DecimalSI)
	return h
}

// crowded is a queue at rest in which that many pods wait for terminating pods, two for each that
// terminates. Its methods are called as Run calls them.
func crowded(b *testing.B, pods int) (*Queue, *int) {
	b.Helper()
	q, planned := counter(b, roomOf(b, pods), pods)
	for i := range pods / 2 {
		q.Submit(pod(fmt.Sprint("old-", i), "cpu=500m memory=1Mi example.com/gpu=2"), false)
	}
	settle(b.Context(), q)
	for _, e := range q.admitter.line.Order {
		q.admitter.step(b.Context(), line.Left{UID: e.Pod.UID})
	}
	wait(b, q, pods, "cpu=500m memory=1Mi example.com/gpu=1")
	return q, planned
}

// wait has that many pods more wait with a claim.
func wait(b *testing.B, q *Queue, pods int, limits string) {
	b.Helper()
	for i := range pods {
		q.Submit(pod(fmt.Sprint("new-", i), limits), false)
	}
	settle(b.Context(), q)
	waits := 0
	for _, e := range q.admitter.line.Order {
		if e.State == record.Waiting {
			waits++
		}
	}
	if waits != pods {
		b.Fatalf("%d pods wait, want %d", waits, pods)
	}
}

// counter is a queue without pods, and the number of its plans.
func counter(b *testing.B, h machine.Hardware, devices int) (*Queue, *int) {
	b.Helper()
	store, err := store.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	p, planned := &plugins{}, 0
	p.offer("example.com/gpu", devices)
	q := New(Config{
		Facts: Facts{Hardware: func() machine.Hardware { return h }},
		Rules: topology.Rules{Policy: topology.BestEffort},
		Store: store, Plugins: p, BootID: "boot", Wait: time.Hour,
		Outcomes: Outcomes{Report: func(report.Result) {}},
		Handlers: []decide.Handler{func(decide.Attempt) *decide.Refusal { // called once for each plan
			planned++
			return nil
		}},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- store.Run(ctx) }()
	b.Cleanup(func() { cancel(); <-done })
	return q, &planned
}

// settle runs the queue until nothing is under way.
func settle(ctx context.Context, q *Queue) {
	for q.round(ctx); q.under(); q.round(ctx) {
		<-q.admitter.calls.done.Wake()
	}
}

func (q *Queue) under() bool {
	for _, e := range q.admitter.line.Order {
		if e.State.UnderWay() {
			return true
		}
	}
	return false
}

// spent is the CPU time of the process.
func spent(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRelease is one release while 2,000 pods wait, to the decision on the two that have
// waited for it; "plans" says how many were made.
func BenchmarkRelease(b *testing.B) {
	q, planned := crowded(b, crowd)
	*planned = 0
	released := 0
	var busy time.Duration
	for b.Loop() {
		q.Release(q.admitter.line.Order[0].Pod.UID)
		q.round(b.Context())
		<-q.admitter.calls.done.Wake()
		began := spent(b)
		q.round(b.Context())
		busy += spent(b) - began
		b.StopTimer()
		settle(b.Context(), q)
		if released++; released == crowd/2 {
			q, planned = crowded(b, crowd)
			*planned, released = 0, 0
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(busy.Microseconds())/float64(b.N), "cpu-µs-to-decide/op")
	b.ReportMetric(float64(*planned)/float64(max(released, 1)), "plans/op")
}

// BenchmarkDeviceChange is a change of a plugin's devices that 2,000 waiting pods do not need.
func BenchmarkDeviceChange(b *testing.B) {
	q, planned := crowded(b, crowd)
	*planned = 0
	p := q.admitter.cfg.Plugins.(*plugins)
	began := spent(b)
	for i := 0; b.Loop(); i++ {
		p.offer("example.com/nic", i%7+1)
		q.Poke()
		q.round(b.Context())
	}
	b.ReportMetric(float64((spent(b)-began).Microseconds())/float64(b.N), "cpu-µs/op")
	b.ReportMetric(float64(*planned)/float64(b.N), "plans/op")
}

// BenchmarkPlans is 2,000 waiting pods that are all planned again, as after a change of the
// machine.
func BenchmarkPlans(b *testing.B) {
	q, planned := crowded(b, crowd)
	*planned = 0
	began := spent(b)
	first, second := roomOf(b, crowd), roomOf(b, crowd)
	q.admitter.cfg.Hardware = func() machine.Hardware {
		first, second = second, first
		return first
	}
	for b.Loop() {
		q.round(b.Context())
	}
	b.ReportMetric(float64((spent(b)-began).Microseconds())/float64(max(*planned, 1)),
		"cpu-µs/plan")
	b.ReportMetric(float64(*planned)/float64(b.N), "plans/op")
}

// BenchmarkBreak is what follows when many claims break at once, to the decision on all of those
// pods: half of them lose theirs, because half of the devices are gone or because half of the
// memory is, and take those of the others, who came later.
func BenchmarkBreak(b *testing.B) {
	for _, kind := range []string{"devices", "memory"} {
		for _, pods := range []int{500, 1000, 2000} {
			b.Run(fmt.Sprintf("%s/%d", kind, pods), func(b *testing.B) {
				var busy time.Duration
				for b.Loop() {
					b.StopTimer()
					q, begin := breaking(b, kind, pods)
					b.StartTimer()
					began := spent(b)
					begin()
					settle(b.Context(), q)
					busy += spent(b) - began
					b.StopTimer()
					rejections := 0
					for _, e := range q.admitter.line.Order {
						if e.State == record.Rejected {
							rejections++
						}
					}
					if rejections != pods/2 {
						b.Fatalf("%d pods are rejected, want %d", rejections, pods/2)
					}
					b.StartTimer()
				}
				each := float64(busy.Microseconds()) / float64(b.N*pods)
				b.ReportMetric(each, "cpu-µs/pod")
			})
		}
	}
}

// breaking is a queue with that many claims, and what breaks half of them.
func breaking(b *testing.B, kind string, pods int) (*Queue, func()) {
	if kind == "devices" {
		q, _ := crowded(b, pods)
		return q, func() {
			p := q.admitter.cfg.Plugins.(*plugins)
			r := p.Inventory().Resources["example.com/gpu"]
			r.Devices = r.Devices[:0:0]
			for i := range pods / 2 {
				id := fmt.Sprintf("d%d", i+pods/2)
				r.Devices = append(r.Devices, &devicemanager.Device{ID: id, Healthy: true})
			}
			p.set(r)
		}
	}
	h := roomOf(b, pods)
	h.Allocatable[v1.ResourceMemory] = *resource.NewQuantity(int64(pods)<<20, resource.BinarySI)
	q, _ := counter(b, h, 0)
	wait(b, q, pods, "cpu=500m memory=1Mi example.com/nic=1")
	return q, func() {
		less := roomOf(b, pods)
		less.Allocatable[v1.ResourceMemory] = *resource.NewQuantity(int64(pods/2)<<20,
			resource.BinarySI)
		q.admitter.cfg.Hardware = func() machine.Hardware { return less }
	}
}
