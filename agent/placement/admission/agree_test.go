package admission

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/handlers"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/discover"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/topologytest"
)

const (
	agreeCases    = 10000
	agreePerWorld = 50
)

// What a dry run says is what the queue then does: outcome, reason, message and assignment.
func TestDryRunAgreesWithAdmission(t *testing.T) {
	machines := smallMachines(t)
	seen := map[string]int{}
	for i := range among(agreeCases / agreePerWorld) {
		w, dir := world{Rand: rand.New(rand.NewPCG(7, uint64(i)))}, t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			w.run(t, dir, machines, seen)
		})
		if t.Failed() {
			t.Fatalf("in world %d", i)
		}
	}
	// The cases are not all of one sort.
	t.Log(seen)
	for _, reason := range []string{
		"Admit", "Admit aligned", "Admit advised", "Admit with memory", "Reject for memory",
		"Reject TopologyAffinityError", "Reject UnexpectedAdmissionError", "Reject OutOfcpu",
		"Reject OutOfmemory", "Reject SMTAlignmentError", "Reject SysctlForbidden",
		"Reject OutOfpods", "Wait WaitingForDevicePlugin", "Wait WaitingForResources",
	} {
		if seen[reason] < among(5) {
			t.Errorf("%d cases of %s are too few to mean anything", seen[reason], reason)
		}
	}
}

// smallMachines are the built-in ones on which 10,000 cases do not take long.
func smallMachines(t *testing.T) []*topology.Machine {
	var out []*topology.Machine
	for _, name := range discover.FixtureNames() {
		m := topologytest.Fixture(t, name)
		if m.Online().Size() <= 64 && m.NodeSet().Len() <= 8 {
			out = append(out, m)
		}
	}
	if len(out) < 3 {
		t.Fatal("too few machines")
	}
	return out
}

// machine is a built-in one, or more often one of up to four nodes with few cores of 1, 2 or 4
// threads.
func (w *world) machine(t *testing.T, builtIn []*topology.Machine) *topology.Machine {
	if w.IntN(12) == 0 {
		return builtIn[w.IntN(len(builtIn))]
	}
	spec := topology.Spec{}
	nodes, cores, threads := 1+w.IntN(4), 2+w.IntN(3), 1<<w.IntN(3)
	for n := range nodes {
		spec.Nodes = append(spec.Nodes, topology.Node{
			ID: topology.NodeID(n), MemoryBytes: 16 << 30,
			HugePages: []topology.HugePages{{PageBytes: 2 << 20, Count: uint64(512 * w.IntN(3))}},
		})
		for i := range cores * threads {
			core := n*cores + i/threads
			spec.CPUs = append(spec.CPUs, topology.CPU{
				ID: i%threads*nodes*cores + core, Core: topology.CoreID(core),
				Node:   topology.NodeID(n),
				Socket: topology.SocketID(n / 2), L3: topology.L3ID(n * cores),
			})
		}
	}
	return topologytest.Of(t, spec)
}

// world is a random node and the pods that come to it.
type world struct {
	*rand.Rand
	desk    *desk
	plugins *plugins
	alive   []types.UID
}

func (w *world) run(t *testing.T, dir string, machines []*topology.Machine, seen map[string]int) {
	m := w.machine(t, machines)
	w.plugins = &plugins{}
	w.plugins.advise = w.advice
	w.inventory(m)
	w.desk = open(t, dir, w.plugins, func(c *Config) { w.configure(t, c, m) })
	defer w.desk.stop()
	for n := range agreePerWorld {
		pod := w.pod(types.UID(fmt.Sprintf("p%d", n)))
		w.compare(t, pod, seen)
		w.disturb(m)
	}
}

func (w *world) configure(t *testing.T, c *Config, m *topology.Machine) {
	h := machine.Hardware{Machine: m}
	reserved := 1 + w.IntN(min(2, m.Online().Size()-1))
	if w.IntN(5) > 0 {
		options := cpumanager.Options{
			FullPCPUsOnly: w.IntN(3) == 0, StrictReservation: w.IntN(3) == 0,
			PreferAlignByUncoreCache: w.IntN(4) == 0, DistributeAcrossNUMA: w.IntN(4) == 0,
		}
		var err error
		first := cpuset.New(m.Online().List()[:reserved]...)
		if h.CPUs, err = cpumanager.NewStatic(m, first, options); err != nil {
			t.Fatal(err)
		}
	}
	if w.IntN(3) == 0 {
		h.Options = topology.PreferClosest(m)
	}
	kept := resource.MustParse("1Gi")
	if w.IntN(2) == 0 {
		var err error
		first := m.MemoryNodes().IDs()[0]
		if h.Memory, err = memory.New(m, memory.Amounts{
			first: {v1.ResourceMemory: uint64(kept.Value())},
		}); err != nil {
			t.Fatal(err)
		}
	}
	h.Allocatable = nodestatus.Allocatable(m, nodestatus.Reservation{
		MaxPods: int64(2 + w.IntN(12)),
		Reserved: v1.ResourceList{
			v1.ResourceCPU:    *resource.NewQuantity(int64(reserved), resource.DecimalSI),
			v1.ResourceMemory: kept,
		},
	})
	c.Hardware = func() machine.Hardware { return h }
	c.Rules.Policy = []topology.Policy{
		topology.None, topology.BestEffort, topology.Restricted, topology.SingleNUMANode,
	}[w.IntN(4)]
	c.Rules.Scope = []topology.Scope{topology.ContainerScope, topology.PodScope}[w.IntN(2)]
	c.Rules.Strategy = []topology.Strategy{
		topology.LowestNodes, topology.Packed, topology.Spread,
	}[w.IntN(3)]
	c.Handlers = []decide.Handler{handlers.Sysctls(nil)}
	if w.IntN(2) == 0 {
		c.Wait = 0
	}
}

// inventory lets up to three plugins offer devices, or be away.
func (w *world) inventory(m *topology.Machine) {
	nodes := m.NodeSet().IDs()
	for _, name := range []string{"example.com/gpu", "example.com/nic", "example.com/fpga"} {
		if w.IntN(6) == 0 {
			continue
		}
		r := devicemanager.Resource{Name: name, Connected: w.IntN(10) > 0,
			Options: devicemanager.Options{Preferred: w.IntN(3) == 0}}
		for i := range 1 + w.IntN(8) {
			d := devicemanager.Device{
				ID: fmt.Sprintf("%s-%d", name[12:], i), Healthy: w.IntN(10) > 0,
			}
			if w.IntN(4) > 0 {
				d.Nodes = topology.NewNodeSet(nodes[w.IntN(len(nodes))])
			}
			r.Devices = append(r.Devices, &d)
		}
		w.plugins.set(r)
	}
}

// advice is a plugin's preference: always the same for the same question, now and then none.
func (w *world) advice(req devicemanager.PreferredRequest) ([]string, error) {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, req)
	r := rand.New(rand.NewPCG(h.Sum64(), 0))
	switch r.IntN(6) {
	case 0:
		return nil, errors.New("no preference today")
	case 1:
		return nil, context.DeadlineExceeded
	}
	ids := slices.Clone(req.MustInclude)
	rest := slices.DeleteFunc(slices.Clone(req.Available), func(id string) bool {
		return slices.Contains(ids, id)
	})
	r.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	return append(ids, rest[:max(0, req.Size-len(ids))]...), nil
}

func (w *world) pod(uid types.UID) *v1.Pod {
	p := podtest.New(string(uid))
	if w.IntN(60) == 0 {
		p.Spec.SecurityContext = &v1.PodSecurityContext{
			Sysctls: []v1.Sysctl{{Name: "vm.swappiness", Value: "1"}},
		}
	}
	for i := range w.IntN(3) {
		c := w.container(fmt.Sprintf("init%d", i))
		if w.IntN(2) == 0 {
			c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	for i := range 1 + w.IntN(2) {
		p.Spec.Containers = append(p.Spec.Containers, w.container(fmt.Sprintf("main%d", i)))
	}
	return p
}

func (w *world) container(name string) v1.Container {
	cpus := []string{"500m", "1", "1", "2", "2", "2", "3", "4", "6", "8", "16", "30"}
	memory := []string{"64Mi", "64Mi", "1Gi", "1Gi", "2Gi", "8Gi", "20Gi", "700Gi"}
	limits := v1.ResourceList{
		v1.ResourceCPU:    resource.MustParse(cpus[w.IntN(len(cpus))]),
		v1.ResourceMemory: resource.MustParse(memory[w.IntN(len(memory))]),
	}
	for _, name := range []v1.ResourceName{
		"example.com/gpu", "example.com/nic", "example.com/fpga",
	} {
		if w.IntN(4) == 0 {
			limits[name] = *resource.NewQuantity(int64(1+w.IntN(3)), resource.DecimalSI)
		}
	}
	if w.IntN(6) == 0 {
		limits["hugepages-2Mi"] = *resource.NewQuantity(int64(1+w.IntN(3))<<29, resource.BinarySI)
	}
	c := v1.Container{Name: name, Resources: v1.ResourceRequirements{
		Limits: limits, Requests: limits.DeepCopy(),
	}}
	if w.IntN(6) == 0 { // then the pod is not guaranteed
		c.Resources.Requests[v1.ResourceCPU] = resource.MustParse("250m")
	}
	return c
}

// compare asks first and submits then.
func (w *world) compare(t *testing.T, pod *v1.Pod, seen map[string]int) {
	s, err := w.desk.queue.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	advised := false
	d := s.DryRun(pod, allocation.PodClaims{}, func(a allocation.Ask) ([]string, error) {
		advised = true
		return w.advice(a.PreferredRequest)
	})
	want := fmt.Sprintf("%s %s", pod.UID, d.Outcome)
	if d.Reason != "" {
		want += ": " + d.Reason + ": " + d.Message
	}
	w.desk.hear()
	w.desk.queue.Submit(pod, false)
	synctest.Wait()
	if got := strings.Join(w.desk.hear(), "\n"); got != want {
		t.Errorf("admission said %q, the dry run %q", got, want)
	}
	held := allocation.WithoutAnswers(w.desk.store.State().Pods[pod.UID].Containers)
	if asked := d.Held; asked.IsEmpty() != (len(held) == 0) ||
		!asked.IsEmpty() && !reflect.DeepEqual(held, asked.Containers) {
		t.Errorf("pod %s holds %+v, the dry run said %+v", pod.UID, held, d.Held.Containers)
	}
	seen[strings.TrimSpace(string(d.Outcome)+" "+d.Reason)]++
	if strings.Contains(d.Message, "memorymanager") {
		seen["Reject for memory"]++
	}
	for _, c := range held {
		if len(c.Memory()) > 0 {
			seen["Admit with memory"]++
			break
		}
	}
	if d.Outcome != decide.Admit {
		w.desk.queue.Release(pod.UID)
		synctest.Wait()
		return
	}
	w.alive = append(w.alive, pod.UID)
	if advised {
		seen["Admit advised"]++
	}
	if len(d.Case.Plan.Decisions) > 0 {
		seen["Admit aligned"]++
	}
}

// disturb lets pods terminate and end, and devices fail.
func (w *world) disturb(m *topology.Machine) {
	if len(w.alive) > 0 && w.IntN(3) == 0 {
		w.desk.queue.Leaving(w.alive[w.IntN(len(w.alive))], false)
	}
	if len(w.alive) > 0 && w.IntN(4) == 0 {
		i := w.IntN(len(w.alive))
		w.desk.queue.Release(w.alive[i])
		w.alive = slices.Delete(w.alive, i, i+1)
	}
	if w.IntN(8) == 0 {
		w.inventory(m)
		w.desk.queue.Poke()
	}
	synctest.Wait()
}

// A question is answered while plugins hang, and waits no longer than its asker.
func TestSnapshotWaitsForNobody(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{allocate: func(ctx context.Context, _ string, _ []string) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		p.offer("example.com/gpu", 2)
		d := open(t, dir, p, nil)
		d.queue.Submit(pod("a", "cpu=2 example.com/gpu=1"), false)
		s, err := d.queue.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// What the pod before it is about to get is not to be had.
		one := s.DryRun(pod("b", "cpu=2 example.com/gpu=1"), allocation.PodClaims{}, nil)
		if one.Outcome != decide.Admit ||
			!slices.Equal(one.Held.Containers["main"].Devices()[0].IDs, []string{"d1"}) {
			t.Errorf("%+v", one)
		}
		if two := s.With(one).DryRun(pod("c", "example.com/gpu=1"), allocation.PodClaims{}, nil); two.Outcome != decide.Reject {
			t.Errorf("a third pod gets %+v", two.Held)
		}
		if again := s.DryRun(pod("c", "example.com/gpu=1"), allocation.PodClaims{}, nil); again.Outcome != decide.Admit {
			t.Errorf("the first snapshot has changed: %+v", again.Outcome)
		}
		d.stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := d.queue.Snapshot(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a queue that has stopped answers %v", err)
		}
	})
}

// A node at rest counts what its state file has.
func TestStill(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		p := &plugins{}
		var cfg Config
		d := open(t, dir, p, func(c *Config) { cfg = *c })
		defer d.stop()
		cfg.Plugins = p
		cfg.Store = store.Fixed(allocation.State{Pods: map[types.UID]allocation.Pod{
			"old": {UID: "old", Containers: map[string]allocation.Container{
				"main": {allocation.CPUs(cpuset.New(1, 2, 3, 4))},
			}},
		}})
		s := cfg.Still()
		if got := s.DryRun(pod("a", "cpu=3"), allocation.PodClaims{}, nil); got.Outcome != decide.Admit ||
			!got.Held.Containers["main"].CPUs().Equals(cpuset.New(5, 6, 7)) {
			t.Errorf("three CPUs: %+v %+v", got.Outcome, got.Held)
		}
		if got := s.DryRun(pod("a", "cpu=3500m"), allocation.PodClaims{}, nil); got.Reason != "OutOfcpu" {
			t.Errorf("more than is left: %+v", got.Outcome)
		}
		if err := cfg.Store.Commit(t.Context(), allocation.Change{Drop: "old"}); err == nil {
			t.Error("a fixed store took a commit")
		}
	})
}
