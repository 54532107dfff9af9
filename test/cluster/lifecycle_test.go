package cluster_test

import (
	"context"
	"encoding/json"
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

	"github.com/numalet/numalet/internal/lab/crisim"
	"github.com/numalet/numalet/test/cluster/histories"
	"github.com/numalet/numalet/test/harness"
)

// scenario is a pod and what happens to it. At its end the pod is deleted, if it is still there.
type scenario struct {
	name string
	// scripts say what containers do: "main: exit=1 after=1s; init: term=ignore".
	scripts string
	// spec is without what all have; APP is an image. Of a static pod it is in a manifest.
	spec   string
	static bool
	// whole is the pod of a scenario without a spec.
	whole *v1.Pod
	// before is done before the pod is made.
	before act
	steps  []step
	// down is done while no agent runs, and then the scenario goes on with later. Scenarios without stay
	// in one life of the agent.
	down  act
	later []step
}

// step waits until the pod is so, lets it be so for a while, and acts.
type step struct {
	until func(*v1.Pod) bool
	stay  time.Duration
	do    act
}

// act is something that is done to the pod of a scenario on one side.
type act func(ctx context.Context, s *scenarioNode, pod string) error

// TestLifecycleScenarios: while the same happens to the same pods watchers see the same of them of numalet as
// of the stock kubelet, in the same order, and so do readers of events, the runtime and device
// plugins. One side may skip what the other shows for a moment; what else differs is in
// meantHistories, of which each is met.
//
// What differs is told again alone before it counts: a busy machine makes long what is short.
// NUMALET_SCENARIOS is a regular expression for the names of those to tell. NUMALET_SCENARIOS_TRIES is
// how often one is told at most. NUMALET_SCENARIOS_PODS is how many further pods have several variants
// by chance: always the same, or others with each NUMALET_PARITY_SEED.
func TestLifecycleScenarios(t *testing.T) {
	port, servers := newAnswers(t, len(agents))
	var sides []*scenarioNode
	for i, agent := range agents {
		sides = append(sides, newScenarioNode(t, agent, fmt.Sprint(port), servers[i]))
	}
	groups := slices.Collect(slices.Chunk(pluginScenarios(), pluginsAtOnce))
	groups = slices.AppendSeq(groups, slices.Chunk(scenarios(), storiesAtOnce))
	groups = slices.AppendSeq(groups, slices.Chunk(chanceScenarios(t, port, sides[0]), atOnce))
	groups = append(groups, restartScenarios())
	meant, whole := &histories.Comparison{Meant: meantHistories}, true
	for _, some := range groups {
		named := slices.DeleteFunc(slices.Clone(some), func(s scenario) bool {
			return !chosen(t).MatchString(s.name)
		})
		whole = whole && len(named) == len(some)
		tellUntilAlike(t, sides, named, meant)
	}
	for _, m := range meant.Unmet() {
		if whole {
			t.Errorf("nothing differs as in this difference that is meant: %+v", m)
		}
	}
}

// tellUntilAlike tells scenarios, those that differ again, and fails if some differ still.
func tellUntilAlike(t *testing.T, sides []*scenarioNode, some []scenario, c *histories.Comparison) {
	t.Helper()
	tries := int(harness.Number(t, "NUMALET_SCENARIOS_TRIES", 3))
	var wrong []string
	for try := 1; try <= tries && len(some) > 0; try++ {
		if try > 1 {
			t.Logf("told again:\n%s", strings.Join(wrong, "\n"))
		}
		wrong = tellAll(t, sides, some, c, try)
		some = slices.DeleteFunc(slices.Clone(some), func(s scenario) bool {
			return !slices.ContainsFunc(wrong, func(w string) bool {
				return strings.HasPrefix(w, s.name+",")
			})
		})
	}
	for _, w := range wrong {
		t.Error(w)
	}
}

// chanceScenarios are of pods with several variants by chance, as in TestParity, that the API server
// takes.
func chanceScenarios(t *testing.T, port int, on *scenarioNode) (out []scenario) {
	t.Helper()
	seed := harness.Number(t, "NUMALET_PARITY_SEED", 1795356351761480071)
	several := int(harness.Number(t, "NUMALET_SCENARIOS_PODS", 12))
	random := rand.New(rand.NewPCG(seed, 1))
	for _, pod := range severalVariants(random, simVariants(asking{port}), several) {
		pod.Name, pod.Spec.NodeName = strings.Replace(pod.Name, "several", "chance", 1), ""
		if !hangs(pod) && on.takes(t, pod) {
			out = append(out, scenario{name: pod.Name, whole: pod,
				steps: []step{{until: hasCome, stay: firstProbes}}})
		}
	}
	return out
}

// hasCome: the pod is over, or its containers are not on their way any more and have what its
// variants make of them.
func hasCome(p *v1.Pod) bool {
	come := len(p.Status.ContainerStatuses) > 0
	for _, c := range statuses(p) {
		come = come && (c.State.Waiting == nil || !isOnItsWay(c.State.Waiting.Reason))
	}
	return isOver(p) || come && isSettled(p)
}

// chosen matches the names of the scenarios to tell.
func chosen(t *testing.T) *regexp.Regexp {
	t.Helper()
	is, err := regexp.Compile(os.Getenv("NUMALET_SCENARIOS"))
	if err != nil {
		t.Fatalf("NUMALET_SCENARIOS: %v", err)
	}
	return is
}

// tellAll tells scenarios on both sides at once and says how what was seen differs.
func tellAll(t *testing.T, sides []*scenarioNode, all []scenario, c *histories.Comparison,
	try int) []string {
	t.Helper()
	start := time.Now()
	onBoth(t, sides, all, func(s *scenarioNode, one scenario) error {
		name := one.podName(try, s)
		err := s.act(t.Context(), one.before, name)
		if err == nil {
			err = s.begin(t.Context(), one, try)
		}
		if err == nil {
			err = s.tell(t.Context(), one.steps, name)
		}
		if err == nil && one.later == nil {
			err = s.end(t.Context(), one, name)
		}
		return err
	})
	if slices.ContainsFunc(all, func(s scenario) bool { return s.later != nil }) {
		tellOn(t, sides, all, try)
	}
	wrong, late := differ(sides, all, c, try)
	t.Logf("try %d: %d scenarios, %v; what is new is seldom seen later than %v", try, len(all),
		time.Since(start).Round(time.Second), late.Round(10*time.Millisecond))
	return wrong
}

// tellOn restarts the agents and tells the rest of the scenarios.
func tellOn(t *testing.T, sides []*scenarioNode, all []scenario, try int) {
	t.Helper()
	for _, s := range sides {
		s.Kill()
	}
	onBoth(t, sides, all, func(s *scenarioNode, one scenario) error {
		return s.act(t.Context(), one.down, one.podName(try, s))
	})
	for _, s := range sides {
		s.Start()
	}
	onBoth(t, sides, all, func(s *scenarioNode, one scenario) error {
		name := one.podName(try, s)
		if err := s.tell(t.Context(), one.later, name); err != nil {
			return err
		}
		return s.end(t.Context(), one, name)
	})
}

// differ says how what was seen of scenarios differs, and how late it was seen. It waits for events
// that come late.
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

// storiesAtOnce is how many scenarios are told at a time, that the machine is not only busy with starts.
const storiesAtOnce = 35

// shortly is for how long one side may show what the other does not, on a machine that is not busy.
const shortly = 1500 * time.Millisecond

// lateEvents is how long events may take to come.
const lateEvents = 5 * time.Second

// apart is how long after each other scenarios are begun: nodes are not to be busy with starts only.
const apart = 100 * time.Millisecond

// onBoth does something for each scenario on each side, at once.
func onBoth(t *testing.T, sides []*scenarioNode, all []scenario, do func(*scenarioNode, scenario) error) {
	t.Helper()
	var group sync.WaitGroup
	for _, s := range sides {
		for i, one := range all {
			group.Go(func() {
				time.Sleep(time.Duration(i) * apart)
				if err := do(s, one); err != nil {
					t.Errorf("%s: scenario %s: %v", s.Name, one.name, err)
				}
			})
		}
	}
	group.Wait()
}

// podName is that of the scenario's pod when it is told for the so manyth time.
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

// pod is the scenario's pod on a side.
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

// renamed is a pod of both sides as one of this side, with another name wherever its own stands.
func (s *scenarioNode) renamed(pod *v1.Pod, name string) (*v1.Pod, error) {
	raw, err := json.Marshal(pod)
	out := &v1.Pod{}
	if err == nil {
		err = json.Unmarshal([]byte(strings.NewReplacer(pod.Name, name, sideAddress,
			s.answers.address).Replace(string(raw))), out)
	}
	return out, err
}
