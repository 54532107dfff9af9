package cluster_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/test/cluster/histories"
	"github.com/numalet/numalet/test/harness"
	"github.com/numalet/numalet/test/scratch"
)

// TestResizes: pods whose resources change while they run have the same history on numalet and on the stock
// kubelet, which needs pods' cgroups for it. NUMALET_SCENARIOS chooses some, NUMALET_RESIZES adds that many pods whose
// resources are drawn by chance; NUMALET_PARITY_SEED draws others.
func TestResizes(t *testing.T) {
	port, servers := newProbeServers(t, len(agents))
	var sides []*scenarioNode
	for i, agent := range agents {
		group := ownCgroup(t, "resize-"+agent)
		sides = append(sides, newScenarioNodeWith(t, agent, fmt.Sprint(port), servers[i],
			map[string]any{"cgroupsPerQOS": true, "cgroupRoot": group}, "--device-admission-wait=0")) // as with the kubelet
	}
	for _, s := range sides { // leaves less than half of the CPU that pods may have
		s.Apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: filler}, spec: {nodeName: %s,
 automountServiceAccountToken: false, terminationGracePeriodSeconds: 1,
 containers: [{name: main, image: sim.local/app, resources: {requests: {cpu: 500m}}}]}}`, s.Name))
		await(t, s.Cluster, s.Namespace, "filler", runs)
	}
	some := slices.DeleteFunc(slices.Concat(resizeScenarios(), chanceResizes(t)), func(s scenario) bool {
		return !chosen(t).MatchString(s.name)
	})
	runUntilAlike(t, sides, some, &histories.Comparison{Meant: meantResizes, Shortly: 500 * time.Millisecond})
	for i, s := range sides {
		resizeInItsPlace(t, s, "filler", agents[i] == "numalet")
	}
	ours, theirs := resizesCounted(sides[0]), resizesCounted(sides[1])
	if t.Logf("counted are\n%s", ours); ours != theirs {
		t.Errorf("the stock kubelet counts of the same resizes\n%s", theirs)
	}
}

// resizeInItsPlace has a pod wait for what another one has, and deletes that. asked: the agent foretells it.
func resizeInItsPlace(t *testing.T, s *scenarioNode, other string, asked bool) {
	t.Helper()
	s.Apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: next}, spec: {nodeName: %s,
 automountServiceAccountToken: false, containers: [{name: main, image: sim.local/app, resources: {requests: {cpu: 10m}}}]}}`, s.Name))
	await(t, s.Cluster, s.Namespace, "next", isReady)
	if err := resizedMain(`{"requests":{"cpu":"600m"}}`)(t.Context(), s, "next"); err != nil {
		t.Fatal(err)
	}
	await(t, s.Cluster, s.Namespace, "next", pendingFor(v1.PodReasonDeferred))
	if asked {
		foretold(t, s, "600m", "its resize would be deferred, OutOfcpu")
		foretold(t, s, "20m", "its resize would be done")
	}
	s.MustRun("delete", "pod", other)
	await(t, s.Cluster, s.Namespace, "next", hasCPU("main", "600m"))
}

// foretold asks numalet fit about other resources of the pod next.
func foretold(t *testing.T, s *scenarioNode, cpu, want string) {
	t.Helper()
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "fit", "-f", "-", "--node="+s.Name, "--kubeconfig="+s.AdminKubeconfig())
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: next, namespace: %s},
 spec: {containers: [{name: main, image: a, resources: {requests: {cpu: %s}}}]}}`, s.Namespace, cpu))
	if out, err := cmd.CombinedOutput(); !strings.Contains(string(out), want) {
		t.Errorf("asked about %s, numalet fit says %v\n%s", cpu, err, out)
	}
}

// resizesCounted returns the counters of resizes of an agent. The kubelet takes up the resize of a pod that has ended
// again, and counts its end each time, once it knows it no longer as of an unknown priority.
func resizesCounted(s *scenarioNode) string {
	text := s.MustRun("get", "--raw", "/api/v1/nodes/"+s.Name+"/proxy/metrics")
	counted := regexp.MustCompile(`(?m)^kubelet_(container_requested_resizes_total|pod_infeasible_resizes_total|` +
		`pod_deferred_accepted_resizes_total|pod_deferred_resize_duration_seconds_count|pod_resize_duration_milliseconds_count|` +
		`pod_pending_resizes|pod_in_progress_resizes)\b.* [1-9].*$`)
	ended := regexp.MustCompile(`priority_bucket="\w+",(resolution="terminated"\}) \d+`)
	lines := counted.FindAllString(ended.ReplaceAllString(text, "$1 1 or more"), -1)
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "\n")
}

// ownCgroup makes a root for the cgroups of pods, and deletes it at the end of the test.
func ownCgroup(t *testing.T, name string) string {
	t.Helper()
	group := scratch.Cgroup(name)
	if err := cgroups.CreateRoot(group); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cgroups.DeleteRoot(context.Background(), group); err != nil {
			t.Error(err)
		}
	})
	return group
}

// meantResizes are the intended differences.
var meantResizes = []histories.Meant{
	{Field: "condition PodResizeInProgress", Value: "#0 True|absent", Seldom: true,
		Why: "it is short, and the kubelet often tells of its end alone"},
	{Pod: "resize-memory-request", Field: "calls main", Value: "UpdateContainerResources #0", By: histories.Theirs,
		Why: "a memory request changes nothing that the runtime keeps"},
	{Pod: "resize-adds-limits", Field: "container main resources", By: histories.Theirs, Seldom: true,
		Value: "#0 requests cpu 10m memory 20Mi, .*", Why: "the runtime does not have the limits yet"},
	{Pod: "resize-deferred-to-the-end", Field: "events", Value: `Warning ResizeDeferred: .*"generation":3,.*`,
		By: histories.Theirs, Seldom: true, Why: "the kubelet decides again on a pod that is being deleted"},
	{Pod: ".*resize.*", Field: "container .* resources", Seldom: true, Briefly: true,
		Why: "a status written meanwhile has the values that the runtime had by then"},
	{Pod: ".*resize.*", Field: "container .* state", Value: "#[0-9] waiting ContainerCreating", Seldom: true, Briefly: true,
		By: histories.Ours, Why: "the kubelet stops a container and starts it anew in one step, and writes no status between"},
}

// resized returns an action that patches the resources of a pod as kubectl does. spec is JSON.
func resized(spec string) act {
	return func(ctx context.Context, s *scenarioNode, pod string) error {
		_, err := s.Client.CoreV1().Pods(s.Namespace).Patch(ctx, pod, types.StrategicMergePatchType,
			fmt.Appendf(nil, `{"spec":%s}`, spec), metav1.PatchOptions{}, "resize")
		return err
	}
}

// resizedMain returns the patch of the container main.
func resizedMain(resources string) act {
	return resized(`{"containers":[{"name":"main","resources":` + resources + `}]}`)
}

// hasCPU reports whether the container is reported to run with such a request.
func hasCPU(container, amount string) func(*v1.Pod) bool {
	return func(p *v1.Pod) bool {
		for _, c := range statuses(p) {
			if c.Name == container && c.Resources != nil && c.State.Running != nil {
				return c.Resources.Requests.Cpu().String() == amount
			}
		}
		return false
	}
}

// pendingFor reports whether the pod's resize is pending for such a reason.
func pendingFor(reason string) func(*v1.Pod) bool {
	return func(p *v1.Pod) bool {
		for _, c := range p.Status.Conditions {
			if c.Type == v1.PodResizePending {
				return c.Reason == reason
			}
		}
		return false
	}
}

// isSized reports whether the agent has taken the last change of the pod, and carried it out.
func isSized(generation int64) func(*v1.Pod) bool {
	return func(p *v1.Pod) bool {
		return p.Generation == generation && p.Status.ObservedGeneration == generation && isReady(p) &&
			isSettledResize(p) && pendingResize(p) == ""
	}
}

// chanceResizes have pods of one to three containers, guaranteed or burstable, with any policies, whose resources
// change twice. The simulated runtime says nothing of the memory in use, without which the kubelet lowers no limit in
// place.
func chanceResizes(t *testing.T) (out []scenario) {
	t.Helper()
	random := rand.New(rand.NewPCG(harness.Number(t, "NUMALET_PARITY_SEED", 1795356351761480071), 2))
	for i := range harness.Number(t, "NUMALET_RESIZES", 6) {
		guaranteed := random.IntN(2) == 0
		anew := make([]bool, 1+random.IntN(3)) // a container's memory
		memory := make([]int, len(anew))
		for i := range anew {
			anew[i], memory[i] = random.IntN(3) == 0, 16
		}
		resources := func(at int) string {
			if memory[at] += random.IntN(32); anew[at] {
				memory[at] = 16 + random.IntN(64)
			}
			cpu := 5 + random.IntN(20)
			if guaranteed {
				return fmt.Sprintf(`{"requests":{"cpu":"%dm","memory":"%dMi"},"limits":{"cpu":"%[1]dm","memory":"%[2]dMi"}}`,
					cpu, memory[at])
			}
			return fmt.Sprintf(`{"requests":{"cpu":"%dm","memory":"%dMi"},"limits":{"cpu":"%dm","memory":"%dMi"}}`, cpu,
				8+random.IntN(8), cpu+1+random.IntN(20), memory[at])
		}
		var made []string
		for at := range anew {
			policy := "NotRequired"
			if anew[at] {
				policy = "RestartContainer"
			}
			made = append(made, fmt.Sprintf(`{"name":"c%d","image":"APP","resources":%s,
 "resizePolicy":[{"resourceName":"memory","restartPolicy":%q}]}`, at, resources(at), policy))
		}
		changed := func() string {
			var some []string
			for at := range anew {
				if len(some) == 0 || random.IntN(2) == 0 {
					some = append(some, fmt.Sprintf(`{"name":"c%d","resources":%s}`, at, resources(at)))
				}
			}
			return `{"containers":[` + strings.Join(some, ",") + `]}`
		}
		out = append(out, scenario{name: fmt.Sprintf("chance-resize-%d", i),
			spec: `{"terminationGracePeriodSeconds":1,"containers":[` + strings.Join(made, ",") + `]}`, steps: []step{
				{until: isSized(1), stay: 2 * time.Second, do: resized(changed())},
				{until: isSized(2), stay: 2 * time.Second, do: resized(changed())},
				{until: isSized(3), stay: 2 * time.Second}}})
	}
	return out
}

// resizeScenarios have pods whose resources change while they run.
func resizeScenarios() []scenario {
	const (
		small   = `resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {cpu: 20m, memory: 32Mi}}`
		exactly = `resources: {requests: {cpu: 20m, memory: 32Mi}, limits: {cpu: 20m, memory: 32Mi}}`
		anew    = `, resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]`
		grown   = `{"requests":{"cpu":"30m","memory":"24Mi"},"limits":{"cpu":"60m","memory":"64Mi"}}`
	)
	still := 2 * time.Second
	return []scenario{
		{name: "resize-grows", spec: of("", small), steps: []step{
			{until: isReady, stay: still, do: resizedMain(grown)},
			{until: hasCPU("main", "30m"), stay: still}}},
		{name: "resize-shrinks", spec: of("", small), steps: []step{
			{until: isReady, stay: still, do: resizedMain(`{"requests":{"cpu":"5m"},"limits":{"cpu":"15m"}}`)},
			{until: hasCPU("main", "5m"), stay: still}}},
		{name: "resize-guaranteed", spec: of("", exactly), steps: []step{
			{until: isReady, stay: still, do: resizedMain(`{"requests":{"cpu":"30m","memory":"64Mi"},"limits":{"cpu":"30m","memory":"64Mi"}}`)},
			{until: hasCPU("main", "30m"), stay: still}}},
		{name: "resize-memory-request", spec: of("", small), steps: []step{
			{until: isReady, stay: still, do: resizedMain(`{"requests":{"memory":"20Mi"}}`)},
			{until: isReady, stay: 2 * still}}},
		{name: "resize-adds-limits", spec: of("", `resources: {requests: {cpu: 10m}}`), steps: []step{
			{until: isReady, stay: still, do: resizedMain(`{"requests":{"cpu":"12m","memory":"20Mi"},"limits":{"cpu":"60m","memory":"64Mi"}}`)},
			{until: hasCPU("main", "12m"), stay: still}}},
		{name: "resize-twice", spec: of("", small), steps: []step{
			{until: isReady, stay: still, do: resizedMain(grown)},
			{until: hasCPU("main", "30m"), stay: still,
				do: resizedMain(`{"requests":{"cpu":"10m","memory":"16Mi"},"limits":{"cpu":"20m"}}`)},
			{until: hasCPU("main", "10m"), stay: still}}},
		{name: "resize-deferred", spec: of("", `resources: {requests: {cpu: 10m}}`), steps: []step{
			{until: isReady, stay: still, do: resizedMain(`{"requests":{"cpu":"600m"}}`)},
			{until: pendingFor(v1.PodReasonDeferred), stay: still, do: resizedMain(`{"requests":{"cpu":"12m"}}`)},
			{until: hasCPU("main", "12m"), stay: still}}},
		{name: "resize-taken-back", spec: of("", `resources: {requests: {cpu: 10m}}`), steps: []step{
			{until: isReady, stay: still, do: resizedMain(`{"requests":{"cpu":"600m"}}`)},
			{until: pendingFor(v1.PodReasonDeferred), stay: still, do: resizedMain(`{"requests":{"cpu":"10m"}}`)},
			{until: func(p *v1.Pod) bool { return !pendingFor(v1.PodReasonDeferred)(p) }, stay: still}}},
		{name: "resize-deferred-to-the-end", spec: of("terminationGracePeriodSeconds: 1, ", `resources: {requests: {cpu: 10m}}`),
			steps: []step{
				{until: isReady, stay: still, do: resizedMain(`{"requests":{"cpu":"600m"}}`)},
				{until: pendingFor(v1.PodReasonDeferred), stay: still}}},
		{name: "resize-starts-anew", spec: of("terminationGracePeriodSeconds: 1, ", small+anew), steps: []step{
			{until: isReady, stay: still, do: resizedMain(grown)},
			{until: is("main", 1, running), stay: still}}},
		{name: "resize-cpu-in-place", spec: of("terminationGracePeriodSeconds: 1, ", small+anew), steps: []step{
			{until: isReady, stay: still, do: resizedMain(`{"requests":{"cpu":"30m"},"limits":{"cpu":"60m"}}`)},
			{until: hasCPU("main", "30m"), stay: still}}},
		{name: "resize-sidecar", spec: `{initContainers: [{name: side, image: APP, restartPolicy: Always, ` + small +
			`}], containers: [{name: main, image: APP, ` + small + `}]}`, steps: []step{
			{until: isReady, stay: still, do: resized(`{"initContainers":[{"name":"side","resources":` + grown + `}]}`)},
			{until: hasCPU("side", "30m"), stay: still}}},
		{name: "resize-several", spec: `{containers: [{name: main, image: APP, ` + small + `}, {name: other, image: APP, ` +
			small + `}]}`, steps: []step{
			{until: isReady, stay: still, do: resized(`{"containers":[{"name":"main","resources":` + grown +
				`},{"name":"other","resources":{"requests":{"cpu":"5m"}}}]}`)},
			{until: hasCPU("main", "30m"), stay: still}}},
		{name: "resize-pod", spec: `{resources: {requests: {cpu: 40m, memory: 64Mi}, limits: {cpu: 80m, memory: 128Mi}},
  containers: [{name: main, image: APP, ` + small + `}]}`, steps: []step{
			{until: isReady, stay: still, do: resized(`{"resources":{"requests":{"cpu":"50m"},"limits":{"cpu":"90m","memory":"256Mi"}}}`)},
			{until: isReady, stay: 2 * still}}},
	}
}
