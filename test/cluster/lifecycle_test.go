package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/test/cluster/histories"
	"github.com/numalet/numalet/test/harness"
)

// scenario is a pod and what happens to it. At its end the pod is deleted, if it still exists.
type scenario struct {
	name string
	// scripts are the containers' scripts: "main: exit=1 after=1s; init: term=ignore".
	scripts string
	// spec is the pod's spec without the common fields; APP stands for an image. A static pod has
	// it in a manifest.
	spec   string
	static bool
	// bound: the pod is created on the node even if it has claims, so no scheduler allocates them.
	bound bool
	// whole is the pod of a scenario without a spec.
	whole *v1.Pod
	// before runs before the pod is created.
	before act
	steps  []step
	// down runs while no agent runs, and later follows after the restart. Other scenarios end
	// within one run of the agent.
	down  act
	later []step
}

// step waits until the pod meets a condition and has met it for a while, and acts.
type step struct {
	until func(*v1.Pod) bool
	stay  time.Duration
	do    act
}

// act does something to the pod of a scenario on one agent's node.
type act func(ctx context.Context, s *scenarioNode, pod string) error

// TestLifecycleScenarios: the same happens to the same pods on numalet and on the stock kubelet.
// Watchers, readers of events, the runtime and device plugins see the same from both, in the same
// order. An agent may skip what the other shows for a moment; the other intended differences are in
// meantHistories, and each of these must occur.
//
// Scenarios that differ are repeated alone before the difference counts: on a busy machine short
// states last long, and a restarted kubelet may fail a pod whose plugin is not back. NUMALET_SCENARIOS is a regular expression for the names of scenarios to run,
// NUMALET_SCENARIOS_TRIES bounds the runs of one. NUMALET_SCENARIOS_PODS adds that many pods with
// several random variants; NUMALET_PARITY_SEED draws others.
func TestLifecycleScenarios(t *testing.T) {
	port, servers := newProbeServers(t, len(agents))
	var sides []*scenarioNode
	for i, agent := range agents {
		sides = append(sides, newScenarioNode(t, agent, fmt.Sprint(port), servers[i],
			"--device-admission-wait=0", "--device-plugin-allocatable-grace=0")) // as with the kubelet
	}
	groups := slices.Collect(slices.Chunk(pluginScenarios(), pluginsAtOnce))
	groups = slices.AppendSeq(groups, slices.Chunk(scenarios(), scenariosAtOnce))
	groups = slices.AppendSeq(groups, slices.Chunk(chanceScenarios(t, port, sides[0]), atOnce))
	groups = append(groups, restartScenarios())
	meant, whole := &histories.Comparison{Meant: meantHistories}, true
	for _, some := range groups {
		named := slices.DeleteFunc(slices.Clone(some), func(s scenario) bool {
			return !chosen(t).MatchString(s.name)
		})
		whole = whole && len(named) == len(some)
		runUntilAlike(t, sides, named, meant)
	}
	for _, m := range meant.Unmet() {
		if whole {
			t.Errorf("nothing differs as in this difference that is meant: %+v", m)
		}
	}
}

// runUntilAlike runs scenarios, repeats those that differ, and fails if some still differ.
func runUntilAlike(t *testing.T, sides []*scenarioNode, some []scenario, c *histories.Comparison) {
	t.Helper()
	tries := int(harness.Number(t, "NUMALET_SCENARIOS_TRIES", 3))
	var wrong []string
	for try := 1; try <= tries && len(some) > 0; try++ {
		if try > 1 {
			t.Logf("told again:\n%s", strings.Join(wrong, "\n"))
		}
		wrong = runAll(t, sides, some, c, try)
		some = slices.DeleteFunc(slices.Clone(some), func(s scenario) bool {
			return !slices.ContainsFunc(wrong, func(w string) bool {
				return strings.HasPrefix(w, s.name+",")
			})
		})
	}
	for _, one := range some {
		if one.whole != nil {
			t.Logf("%s has the variants %s", one.name, one.whole.Annotations[variantsNote])
		}
	}
	for _, w := range wrong {
		t.Error(w)
	}
}

// chanceScenarios have pods with several random variants, as in TestParity, that the API server
// accepts.
func chanceScenarios(t *testing.T, port int, on *scenarioNode) (out []scenario) {
	t.Helper()
	seed := harness.Number(t, "NUMALET_PARITY_SEED", 1795356351761480071)
	several := int(harness.Number(t, "NUMALET_SCENARIOS_PODS", 12))
	random := rand.New(rand.NewPCG(seed, 1))
	for _, pod := range severalVariants(random, simVariants(asking{port: port}), several) {
		pod.Spec.NodeName = ""
		if !hangs(pod) && on.takes(t, pod) {
			out = append(out, scenario{name: strings.Replace(pod.Name, "several", "chance", 1), whole: pod,
				steps: []step{{until: hasCome, stay: firstProbes}}})
		}
	}
	return out
}

// hasCome reports whether the pod has ended, or its containers have started and reached the state
// of its variants, or an init container cannot be created, for which the others wait.
func hasCome(p *v1.Pod) bool {
	for _, c := range p.Status.InitContainerStatuses {
		if c.State.Waiting != nil && strings.HasPrefix(c.State.Waiting.Reason, "CreateContainer") {
			return true
		}
	}
	come := len(p.Status.ContainerStatuses) > 0
	for _, c := range statuses(p) {
		come = come && (c.State.Waiting == nil || !isOnItsWay(c.State.Waiting.Reason))
	}
	return isOver(p) || come && isSettled(p)
}

// chosen matches the names of the scenarios to run.
func chosen(t *testing.T) *regexp.Regexp {
	t.Helper()
	is, err := regexp.Compile(os.Getenv("NUMALET_SCENARIOS"))
	if err != nil {
		t.Fatalf("NUMALET_SCENARIOS: %v", err)
	}
	return is
}

// runAll runs scenarios on both nodes at once and returns the differences of their records.
func runAll(t *testing.T, sides []*scenarioNode, all []scenario, c *histories.Comparison,
	try int) []string {
	t.Helper()
	start := time.Now()
	failed := playAll(t, sides, all, try)
	wrong, late := differ(sides, all, c, try)
	t.Logf("try %d: %d scenarios, %v; what is new is seldom seen later than %v", try, len(all),
		time.Since(start).Round(time.Second), late.Round(10*time.Millisecond))
	return append(failed, wrong...)
}

// playAll runs scenarios on the nodes at once. It returns what could not be played, by scenario.
func playAll(t *testing.T, sides []*scenarioNode, all []scenario, try int) (failed []string) {
	t.Helper()
	failed = onBoth(sides, all, func(s *scenarioNode, one scenario) error {
		name := one.podName(try, s)
		err := s.act(t.Context(), one.before, name)
		if err == nil {
			err = s.begin(t.Context(), one, try)
		}
		if err == nil {
			err = s.play(t.Context(), one.steps, name)
		}
		if one.later == nil {
			err = errors.Join(err, s.end(t.Context(), one, name))
		}
		return err
	})
	if slices.ContainsFunc(all, func(s scenario) bool { return s.later != nil }) {
		failed = append(failed, runAfterRestart(t, sides, all, try)...)
	}
	return failed
}

// runAfterRestart restarts the agents and runs the rest of the scenarios.
func runAfterRestart(t *testing.T, sides []*scenarioNode, all []scenario, try int) (failed []string) {
	t.Helper()
	for _, s := range sides {
		s.Kill()
	}
	failed = onBoth(sides, all, func(s *scenarioNode, one scenario) error {
		return s.act(t.Context(), one.down, one.podName(try, s))
	})
	for _, s := range sides {
		s.Start()
	}
	return append(failed, onBoth(sides, all, func(s *scenarioNode, one scenario) error {
		name := one.podName(try, s)
		err := s.play(t.Context(), one.later, name)
		return errors.Join(err, s.end(t.Context(), one, name))
	})...)
}

// differ returns the differences between the records of scenarios, and how late they were made. It
// waits for late events.
func differ(sides []*scenarioNode, all []scenario, c *histories.Comparison, try int) (
	wrong []string, late time.Duration) {
	for began := time.Now(); ; time.Sleep(500 * time.Millisecond) {
		seen := make([]map[string]histories.History, len(sides))
		late = 0
		for i, s := range sides {
			journal := s.Runtime.Journal(0)
			seen[i] = s.Histories(journal)
			late = max(late, s.Late(journal, func(pod string) bool {
				return slices.ContainsFunc(all, func(one scenario) bool { return one.podName(try, s) == pod })
			}))
		}
		c.Know(histories.Ours, seen[0])
		c.Know(histories.Theirs, seen[1])
		c.Shortly = shortly + 2*late
		wrong = nil
		for _, one := range all {
			wrong = append(wrong, c.Pod(one.name, seen[0][one.podName(try, sides[0])],
				seen[1][one.podName(try, sides[1])])...)
		}
		if len(wrong) == 0 || time.Since(began) > lateEvents {
			return wrong, late
		}
	}
}

// scenariosAtOnce bounds the scenarios at the same time, so that the machine is not busy with
// starts only.
const scenariosAtOnce = 35

// shortly is how long one agent may show what the other does not, on a machine that is not busy.
const shortly = 1500 * time.Millisecond

// lateEvents bounds how late events may come.
const lateEvents = 5 * time.Second

// apart is the time between the starts of two scenarios: nodes should not be busy with starts only.
const apart = 100 * time.Millisecond

// onBoth runs do for each scenario on each node, all at once. It returns the errors, by scenario.
func onBoth(sides []*scenarioNode, all []scenario, do func(*scenarioNode, scenario) error) (
	failed []string) {
	var group sync.WaitGroup
	var mu sync.Mutex
	for _, s := range sides {
		for i, one := range all {
			group.Go(func() {
				time.Sleep(time.Duration(i) * apart)
				if err := do(s, one); err != nil {
					mu.Lock()
					defer mu.Unlock()
					failed = append(failed, fmt.Sprintf("%s, on the node of %s: %v", one.name, s.Name, err))
				}
			})
		}
	}
	group.Wait()
	return failed
}

// podName returns the name of the scenario's pod in its nth run.
func (one scenario) podName(try int, s *scenarioNode) string {
	name := one.name
	if try > 1 {
		name += fmt.Sprint("-try", try)
	}
	if one.static {
		name += "-" + s.Name
	}
	return name
}

// pod returns the scenario's pod for a node.
func (one scenario) pod(try int, s *scenarioNode) (*v1.Pod, error) {
	pod := ordinaryPod(one.podName(try, s))
	if one.whole != nil {
		return s.renamed(one.whole, pod.Name)
	}
	spec := strings.NewReplacer("APP", rootImage, "POD", pod.Name, "PORT", s.port, "ANSWERS",
		s.answers.address,
		"periodSeconds", "timeoutSeconds: 9, periodSeconds", // on a busy machine
	).Replace(one.spec)
	if err := yaml.UnmarshalStrict([]byte(spec), &pod.Spec); err != nil {
		return nil, err
	}
	for script := range strings.SplitSeq(one.scripts, ";") {
		container, text, is := strings.Cut(script, ":")
		if is {
			pod.Annotations[crisim.AnnotationPrefix+strings.TrimSpace(container)] = strings.TrimSpace(text)
		}
	}
	return pod, nil
}

// renamed returns a pod for this node, with another name wherever its own appears.
func (s *scenarioNode) renamed(pod *v1.Pod, name string) (*v1.Pod, error) {
	raw, err := json.Marshal(pod)
	out := &v1.Pod{}
	if err == nil {
		err = json.Unmarshal([]byte(strings.NewReplacer(pod.Name, name, sideAddress,
			s.answers.address).Replace(string(raw))), out)
	}
	return out, err
}
