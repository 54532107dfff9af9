package cluster_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// resizedPods is how many pods TestKilledWhileResizing has.
const resizedPods = 4

// TestKilledWhileResizing: pods are resized, and the agent is killed at some moment of that. Its next run completes what
// it had begun: the runtime and the pods' statuses have what the pods ask for, and nothing is started anew. The first
// rounds are killed early. NUMALET_RESIZE_ROUNDS says how many there are, NUMALET_RESIZE_SEED draws others.
func TestKilledWhileResizing(t *testing.T) {
	rounds := harness.Number(t, "NUMALET_RESIZE_ROUNDS", 10)
	random := rand.New(rand.NewPCG(harness.Number(t, "NUMALET_RESIZE_SEED", 45), 1))
	c := rig.Start(t)
	n := harness.New(t)
	rig.ThisMachine(n)
	group := ownCgroup(t, "resize-kill")
	n.Settings["cgroupsPerQOS"], n.Settings["cgroupRoot"] = true, group
	n.Settings["cpuManagerPolicy"], n.Settings["topologyManagerPolicy"] = "none", "none"
	s := &side{Cluster: c, Node: c.Join(n, "resize-kill")}
	s.Start()
	s.AwaitReady(s.Name)
	var pods []string
	for i := range resizedPods {
		pods = append(pods, fmt.Sprint("app-", i))
		s.Apply(bound(s.Name, pods[i], `, resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {cpu: 20m, memory: 32Mi}}`))
	}
	for _, name := range pods {
		await(t, c, c.Namespace, name, runs)
	}
	for round := range rounds {
		wanted := map[string]v1.ResourceRequirements{}
		for _, name := range pods {
			wanted[name] = s.resizeByChance(t, random, name)
		}
		time.Sleep(time.Duration(random.IntN(int(min(round+1, 30)))) * 4 * time.Millisecond)
		s.Kill()
		s.Start()
		for _, name := range pods {
			s.awaitSized(t, name, wanted[name])
		}
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	s.MustRun("delete", "pods", "--all", "--timeout=1m")
}

// resizeByChance gives a pod other requests and limits, and returns them.
func (s *side) resizeByChance(t *testing.T, random *rand.Rand, name string) v1.ResourceRequirements {
	t.Helper()
	cpu, memory := 5+random.IntN(60), 8+random.IntN(60)
	patched, err := s.Client.CoreV1().Pods(s.Namespace).Patch(t.Context(), name, types.StrategicMergePatchType,
		fmt.Appendf(nil, `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"%dm","memory":"%dMi"},`+
			`"limits":{"cpu":"%dm","memory":"%dMi"}}}]}}`, cpu, memory, cpu+1+random.IntN(60), memory+1+random.IntN(60)),
		metav1.PatchOptions{}, "resize")
	if err != nil {
		t.Fatal(err)
	}
	return patched.Spec.Containers[0].Resources
}

// awaitSized waits until the pod's status and the runtime have these resources and no resize is told of.
func (s *side) awaitSized(t *testing.T, name string, want v1.ResourceRequirements) {
	t.Helper()
	same := func(a, b v1.ResourceList) bool {
		return a.Cpu().Cmp(*b.Cpu()) == 0 && a.Memory().Cmp(*b.Memory()) == 0
	}
	p := await(t, s.Cluster, s.Namespace, name, func(p *v1.Pod) bool {
		has := p.Status.ContainerStatuses[0]
		return isSettledResize(p) && pendingResize(p) == "" && same(has.AllocatedResources, want.Requests) &&
			same(has.Resources.Requests, want.Requests) && same(has.Resources.Limits, want.Limits)
	})
	if restarts := p.Status.ContainerStatuses[0].RestartCount; restarts > 0 {
		t.Errorf("%s was started anew %d times", name, restarts)
	}
	state := s.Runtime.State()
	at := slices.IndexFunc(state.Containers, func(c crisim.Container) bool { return c.Subject.Pod == name && c.Running() })
	if at < 0 {
		t.Fatalf("%s does not run", name)
	}
	if r := state.Containers[at].Resources; r.GetMemoryLimitInBytes() != want.Limits.Memory().Value() ||
		r.GetCpuQuota() != max(1000, 100*want.Limits.Cpu().MilliValue()) { // the least that the kernel takes
		t.Errorf("%s runs with %v, and has the limits %v", name, r, want.Limits)
	}
}
