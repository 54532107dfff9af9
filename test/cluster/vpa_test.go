package cluster_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// vpaRounds is how often the updater looks.
const vpaRounds = 10

// TestVerticalPodAutoscaler: the Vertical Pod Autoscaler resizes 60 pods in place, on a node with the
// static CPU policy. Each patch ends as done, or as deferred or infeasible with a message. No container is
// started anew, and what is allocated never exceeds what may be. A round begins every NUMALET_VPA_INTERVAL
// seconds: 60 is the updater's own pace, which takes ten minutes. NUMALET_VPA_SEED draws other
// recommendations.
func TestVerticalPodAutoscaler(t *testing.T) {
	interval := time.Duration(harness.Number(t, "NUMALET_VPA_INTERVAL", 4)) * time.Second
	random := rand.New(rand.NewPCG(harness.Number(t, "NUMALET_VPA_SEED", 1287), 1))
	s := newVPANode(t)
	most := s.allocatable(t)
	h := &vpaHistory{pods: map[types.UID]vpaPod{}}
	follow(t, s.Cluster, "pods", s.Namespace, h.tell)
	u := &vpaUpdater{Cluster: s.Cluster, interval: interval, patched: h.begin,
		resizing: map[types.UID]time.Time{}}
	loads := vpaWorkloads(most.Cpu().MilliValue())
	for _, w := range loads {
		s.Apply(w.deployment(s.Name))
	}
	for _, w := range loads {
		s.MustRun("rollout", "status", "deployment/"+w.name, "--timeout=2m")
	}
	used, began := s.CPU(), time.Now()
	for round := range vpaRounds {
		for _, w := range loads {
			if err := u.round(t.Context(), w.name, w.replicas, w.recommend(random, round)); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		for time.Since(began) < time.Duration(round+1)*interval {
			s.checkAllocated(t, most)
			time.Sleep(200 * time.Millisecond)
		}
		h.awaitAnswered(t)
		s.checkStatuses(t, most)
	}
	used = s.CPU() - used
	if s.checkAllocated(t, most) == 0 {
		t.Error("the state file says nothing of what pods were allocated")
	}
	for _, w := range loads {
		s.MustRun("rollout", "status", "deployment/"+w.name, "--timeout=2m")
	}
	h.check(t)
	s.checkRuntime(t, h)
	t.Logf("%d rounds every %v: %s; the API server refused %d more; %d evictions; the agent used %v of CPU",
		vpaRounds, interval, h, u.refused, u.evicted, used)
	s.MustRun("delete", "deployments", "--all", "--timeout=1m")
}

// newVPANode starts a node with cgroups of pods.
func newVPANode(t *testing.T) *side {
	c := rig.Start(t)
	n := harness.New(t)
	rig.ThisMachine(n)
	n.Settings["cgroupsPerQOS"], n.Settings["cgroupRoot"] = true, ownCgroup(t, "vpa")
	n.Settings["topologyManagerPolicy"] = "none"
	s := &side{Cluster: c, Node: c.Join(n, "vpa")}
	s.Start()
	s.AwaitReady(s.Name)
	return s
}

// vpaWorkload is a Deployment with a recommendation for its pods.
type vpaWorkload struct {
	name       string
	replicas   int
	containers []string
	// cpu, in thousandths of a CPU, and memory, in MiB, are requested at first. Limits are that many times as
	// high; 0: there are none.
	cpu, memory, limits int64
	memoryAlone         bool // nothing is recommended for CPUs
	// wishes holds the CPUs that are recommended from some rounds on; in others they are drawn.
	wishes map[int]int64
}

// vpaWorkloads have 60 pods, which request half of the CPUs. What is recommended for the last three is not
// to be had: CPUs that others have, other CPUs for guaranteed pods, and more CPUs than there are.
func vpaWorkloads(cpus int64) []vpaWorkload {
	share, one := max(cpus/1000, 1), []string{"main"}
	return []vpaWorkload{
		{name: "web", replicas: 22, containers: one, cpu: 8 * share, memory: 24, limits: 3},
		{name: "queue", replicas: 12, containers: one, cpu: 8 * share, memory: 24},
		{name: "pair", replicas: 10, containers: []string{"main", "side"}, cpu: 4 * share, memory: 16,
			limits: 2},
		{name: "exact", replicas: 10, containers: one, cpu: 10 * share, memory: 32, limits: 1,
			memoryAlone: true},
		{name: "large", replicas: 2, containers: one, cpu: 10 * share, memory: 16,
			wishes: map[int]int64{0: 10 * share, 1: cpus * 9 / 10}},
		{name: "fixed", replicas: 2, containers: one, cpu: 10 * share, memory: 16, limits: 1,
			wishes: map[int]int64{0: 10 * share, 2: 20 * share, 6: 10 * share}},
		{name: "larger", replicas: 2, containers: one, cpu: 10 * share, memory: 16,
			wishes: map[int]int64{0: 10 * share, 3: 2 * cpus, 5: 10 * share}},
	}
}

// deployment returns the manifest of the workload on a node.
func (w vpaWorkload) deployment(node string) string {
	var containers []string
	for _, name := range w.containers {
		limits := ""
		if w.limits > 0 {
			limits = fmt.Sprintf(", limits: {cpu: %dm, memory: %dMi}", w.limits*w.cpu, w.limits*w.memory)
		}
		containers = append(containers, fmt.Sprintf(`{name: %s, image: "registry.test/work:1",
 resources: {requests: {cpu: %dm, memory: %dMi}%s}}`, name, w.cpu, w.memory, limits))
	}
	return fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s}, spec: {replicas: %d,
 selector: {matchLabels: {app: %[1]s}}, template: {metadata: {labels: {app: %[1]s}}, spec: {nodeName: %[3]s,
 automountServiceAccountToken: false, terminationGracePeriodSeconds: 1, containers: [%[4]s]}}}}`,
		w.name, w.replicas, node, strings.Join(containers, ", "))
}

// recommend returns what a recommender has found by this round.
func (w vpaWorkload) recommend(random *rand.Rand, round int) recommendation {
	r := recommendation{}
	for _, name := range w.containers {
		cpu, memory := w.cpu*int64(60+random.IntN(90))/100, w.memory<<20*int64(70+random.IntN(80))/100
		for from := round; w.wishes != nil && from >= 0; from-- {
			if wish, is := w.wishes[from]; is {
				cpu, memory = wish, w.memory<<20
				break
			}
		}
		r[name] = v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(memory, resource.DecimalSI)}
		if !w.memoryAlone {
			r[name][v1.ResourceCPU] = *resource.NewMilliQuantity(cpu, resource.DecimalSI)
		}
	}
	return r
}

// allocatable returns what the node's pods may be allocated.
func (s *side) allocatable(t *testing.T) v1.ResourceList {
	t.Helper()
	node, err := s.Client.CoreV1().Nodes().Get(t.Context(), s.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node.Status.Allocatable
}

// checkAllocated checks the sum of what the agent's state file says that pods were allocated, and returns
// how many containers of resized pods it has.
func (s *side) checkAllocated(t *testing.T, most v1.ResourceList) int {
	t.Helper()
	state, err := s.Assigned()
	if err != nil {
		t.Fatal(err)
	}
	var lists []v1.ResourceList
	for _, pod := range state.Pods {
		if pod.Resources != nil {
			for _, c := range pod.Resources.Containers {
				lists = append(lists, c.Requests)
			}
		}
	}
	checkSum(t, "the state file", lists, most)
	return len(lists)
}

// checkStatuses checks the sum of what the pods' statuses say that they were allocated.
func (s *side) checkStatuses(t *testing.T, most v1.ResourceList) {
	t.Helper()
	pods, err := s.Client.CoreV1().Pods(s.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var lists []v1.ResourceList
	for _, p := range pods.Items {
		if !isOver(&p) {
			for _, c := range p.Status.ContainerStatuses {
				lists = append(lists, c.AllocatedResources)
			}
		}
	}
	checkSum(t, "statuses", lists, most)
}

func checkSum(t *testing.T, who string, lists []v1.ResourceList, most v1.ResourceList) {
	t.Helper()
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		var sum resource.Quantity
		for _, list := range lists {
			sum.Add(*list.Name(name, ""))
		}
		if limit := most[name]; sum.Cmp(limit) > 0 {
			t.Errorf("by %s %v of %s are allocated, and %v may be", who, &sum, name, &limit)
		}
	}
}

// checkRuntime compares the limits that containers run with to those of their pods' statuses.
func (s *side) checkRuntime(t *testing.T, h *vpaHistory) {
	t.Helper()
	limits := map[string]v1.ResourceList{}
	for _, p := range h.now() {
		for _, c := range p.Status.ContainerStatuses {
			limits[p.Name+"/"+c.Name] = c.Resources.Limits
		}
	}
	running := 0
	for _, c := range s.Runtime.State().Containers {
		has, is := limits[harness.NameOf(c)]
		if !is || !c.Running() {
			continue
		}
		running++
		quota := int64(0)
		if cpu := has.Cpu().MilliValue(); cpu > 0 {
			quota = max(100*cpu, 1000)
		}
		r := c.Resources
		if r.GetMemoryLimitInBytes() != has.Memory().Value() || max(r.GetCpuQuota(), 0) != quota {
			t.Errorf("%s runs with %v, and has the limits %v", harness.NameOf(c), r, has)
		}
	}
	if running != len(limits) {
		t.Errorf("%d containers of %d run", running, len(limits))
	}
}
