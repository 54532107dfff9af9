package cluster_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// ownSets watches which CPUs containers may run on, and notes when two have some of which one says that they
// are its own. Those of a pod with this prefix are.
type ownSets struct {
	mu     sync.Mutex
	sets   map[string]cpuset.CPUSet
	broken []string
}

const ownPrefix = "own-"

func (o *ownSets) watch(c crisim.Container) {
	o.mu.Lock()
	defer o.mu.Unlock()
	name := harness.NameOf(c)
	delete(o.sets, name)
	if !c.Running() {
		return
	}
	set := harness.CPUsOf(c)
	for other, has := range o.sets {
		if both := has.Intersection(set); !both.IsEmpty() &&
			(strings.HasPrefix(name, ownPrefix) || strings.HasPrefix(other, ownPrefix)) {
			o.broken = append(o.broken, fmt.Sprintf("%s and %s run on CPUs %s", name, other, both))
		}
	}
	o.sets[name] = set
}

func (o *ownSets) of(pod string) cpuset.CPUSet {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sets[pod+"/main"]
}

func (o *ownSets) check(t *testing.T) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, what := range o.broken {
		t.Error(what)
	}
}

// exclusiveNode is a node with the static policies on which guaranteed pods can be resized.
func exclusiveNode(t *testing.T, name string) (*side, *ownSets) {
	t.Helper()
	c, n := rig.Start(t), harness.New(t)
	n.Settings["featureGates"] = map[string]bool{
		"InPlacePodVerticalScalingExclusiveCPUs": true, "InPlacePodVerticalScalingExclusiveMemory": true,
	}
	n.Settings["topologyManagerPolicy"] = "single-numa-node"
	n.Settings["memoryManagerPolicy"] = "Static"
	n.Settings["systemReserved"] = map[string]string{"cpu": "1", "memory": "1Gi"}
	n.Settings["evictionHard"] = map[string]string{"memory.available": "0%", "nodefs.available": "0%"}
	n.Settings["reservedMemory"] = []any{map[string]any{"numaNode": 0, "limits": map[string]string{"memory": "1Gi"}}}
	n.Plugin("example.com/gpu", "--devices=4", "--nodes=0,1")
	s := &side{Cluster: c, Node: c.Join(n, name)}
	seen := &ownSets{sets: map[string]cpuset.CPUSet{}}
	n.Runtime.Watch(seen.watch)
	s.Start()
	s.AwaitReady(s.Name)
	s.Apply(bound(s.Name, "shares", ""))
	await(t, c, c.Namespace, "shares", runs)
	return s, seen
}

// exclusive applies a pod with CPUs and memory of its own.
func (s *side) exclusive(t *testing.T, name string, cpus, gib int, more string) {
	t.Helper()
	s.Apply(bound(s.Name, name, fmt.Sprintf(`, resources: {limits: {cpu: %d, memory: %dGi%s}}`, cpus, gib, more)))
	await(t, s.Cluster, s.Namespace, name, runs)
}

// ask has the pod ask for these.
func (s *side) ask(t *testing.T, name string, cpus, gib int) {
	t.Helper()
	amounts := fmt.Sprintf(`{"cpu":"%d","memory":"%dGi"}`, cpus, gib)
	if _, err := s.Client.CoreV1().Pods(s.Namespace).Patch(t.Context(), name, types.StrategicMergePatchType,
		fmt.Appendf(nil, `{"spec":{"containers":[{"name":"main","resources":{"requests":%s,"limits":%[1]s}}]}}`, amounts),
		metav1.PatchOptions{}, "resize"); err != nil {
		t.Fatal(err)
	}
}

// awaitOwn waits until a pod has what it asked for, and returns its CPUs.
func (s *side) awaitOwn(t *testing.T, seen *ownSets, name string, cpus, gib int) cpuset.CPUSet {
	t.Helper()
	p := await(t, s.Cluster, s.Namespace, name, func(p *v1.Pod) bool {
		has := p.Status.ContainerStatuses[0]
		return isSettledResize(p) && pendingResize(p) == "" && has.Resources != nil &&
			has.AllocatedResources.Cpu().Value() == int64(cpus) && has.Resources.Limits.Memory().Value() == int64(gib)<<30
	})
	if restarts := p.Status.ContainerStatuses[0].RestartCount; restarts > 0 {
		t.Errorf("%s was started anew", name)
	}
	got := seen.of(name)
	if got.Size() != cpus {
		t.Errorf("%s asks for %d CPUs and runs on %s", name, cpus, got)
	}
	return got
}

// TestResizeExclusive: a pod with CPUs, memory and devices of its own grows and shrinks. What it has stays, what is
// added is near, and all who ask are told.
func TestResizeExclusive(t *testing.T) {
	s, seen := exclusiveNode(t, "resize-own")
	c := s.Cluster
	applyFile(t, c, "testdata/noderesourcetopology.yaml")
	applyFile(t, c, "../../examples/schedulers/rights.yaml")
	s.exclusive(t, "own-near", 4, 1, ", example.com/gpu: 2")
	first := seen.of("own-near")

	began := time.Now()
	s.ask(t, "own-near", 8, 2)
	harness.Eventually(t, "it runs on 8 CPUs", func() error {
		if got := seen.of("own-near"); got.Size() != 8 {
			return fmt.Errorf("it runs on %s", got)
		}
		return nil
	})
	t.Logf("from the patch to the runtime: %v", time.Since(began).Round(time.Millisecond))
	grown := s.awaitOwn(t, seen, "own-near", 8, 2)
	if !first.IsSubsetOf(grown) || !s.onOneNode(t, "own-near") {
		t.Errorf("it had CPUs %s and has %s", first, grown)
	}
	nodes := "jsonpath={.zones[*].resources[?(@.name==\"cpu\")].available}"
	eventually(t, c, "7 16 16 16", "get", "node-res-topo", s.Name, "-o", nodes)
	text, err := explained(s.AdminKubeconfig(), s.Name, c.Namespace+"/own-near")
	if err != nil || !strings.Contains(text, grown.String()) {
		t.Errorf("explain says %q, %v; it has CPUs %s", text, err, grown)
	}

	s.Kill()
	s.Start()
	s.ask(t, "own-near", 6, 2)
	less := s.awaitOwn(t, seen, "own-near", 6, 2)
	if !first.IsSubsetOf(less) || !less.IsSubsetOf(grown) {
		t.Errorf("it started with CPUs %s, had %s and has %s", first, grown, less)
	}
	s.ask(t, "own-near", 2, 1)
	if least := s.awaitOwn(t, seen, "own-near", 2, 1); !least.IsSubsetOf(first) {
		t.Errorf("it started with CPUs %s and has %s", first, least)
	}

	s.ask(t, "own-near", 17, 1) // a NUMA node has 16
	p := await(t, c, c.Namespace, "own-near", pendingFor(v1.PodReasonInfeasible))
	if text := pendingResize(p); !strings.Contains(text, "Topology locality") {
		t.Errorf("it is infeasible for %q", text)
	}
	s.exclusive(t, "own-other", 13, 1, ", example.com/gpu: 2") // on the other node with GPUs
	s.ask(t, "own-other", 16, 1)
	await(t, c, c.Namespace, "own-other", func(p *v1.Pod) bool { return isSettledResize(p) && pendingResize(p) == "" })
	s.ask(t, "own-near", 4, 1)
	if more := s.awaitOwn(t, seen, "own-near", 4, 1); !s.onOneNode(t, "own-near") || !s.onOneNode(t, "own-other") {
		t.Errorf("CPUs %s and %s are not each on one node", more, seen.of("own-other"))
	}
	seen.check(t)
	s.MustRun("delete", "pods", "--all", "--timeout=1m")
}

// onOneNode reports whether the agent says that a pod's container has all on one NUMA node.
func (s *side) onOneNode(t *testing.T, name string) bool {
	t.Helper()
	rows, err := s.Placements()
	if err != nil {
		t.Fatal(err)
	}
	row := rows[name+"/main"]
	return row.NUMANodes != "" && row.NUMANodes == row.MemoryNodes && !strings.ContainsAny(row.NUMANodes, ",-")
}

// TestKilledWhileResizingExclusive is TestKilledWhileResizing for pods with CPUs and memory of their own, of which no
// other ever has any.
func TestKilledWhileResizingExclusive(t *testing.T) {
	rounds := harness.Number(t, "NUMALET_RESIZE_ROUNDS", 10)
	random := rand.New(rand.NewPCG(harness.Number(t, "NUMALET_RESIZE_SEED", 45), 2))
	s, seen := exclusiveNode(t, "resize-own-kill")
	pods := []string{"own-a", "own-b", "own-c"}
	for _, name := range pods {
		s.exclusive(t, name, 2, 1, "")
	}
	for round := range rounds {
		cpus, gib := map[string]int{}, map[string]int{}
		for _, name := range pods {
			cpus[name], gib[name] = 1+random.IntN(5), 1+random.IntN(4) // all of them fit on one node
			s.ask(t, name, cpus[name], gib[name])
		}
		time.Sleep(time.Duration(random.IntN(int(min(round+1, 30)))) * 4 * time.Millisecond)
		s.Kill()
		s.Start()
		for _, name := range pods {
			s.awaitOwn(t, seen, name, cpus[name], gib[name])
		}
		if seen.check(t); t.Failed() {
			t.Fatalf("in round %d: %v", round, slices.Collect(slices.Values(seen.broken)))
		}
	}
	s.MustRun("delete", "pods", "--all", "--timeout=1m")
}
