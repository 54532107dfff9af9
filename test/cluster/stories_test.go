package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/numalet/numalet/cri/sim"
	"github.com/numalet/numalet/test/cluster/histories"
	"github.com/numalet/numalet/test/harness"
)

// story is a pod and what happens to it. At its end the pod is deleted, if it is still there.
type story struct {
	name string
	// scripts say what containers do: "main: exit=1 after=1s; init: term=ignore".
	scripts string
	// spec is without what all have; APP is an image. Of a static pod it is in a manifest.
	spec   string
	static bool
	// whole is the pod of a story without a spec.
	whole *v1.Pod
	// before is done before the pod is made.
	before act
	steps  []step
	// down is done while no agent runs, and then the story goes on with later. Stories without stay in
	// one life of the agent.
	down  act
	later []step
}

// step waits until the pod is so, lets it be so for a while, and acts.
type step struct {
	until func(*v1.Pod) bool
	stay  time.Duration
	do    act
}

// act is something that is done to the pod of a story on one side.
type act func(ctx context.Context, s *storySide, pod string) error

// storySide is a side whose pods are recorded.
type storySide struct {
	*side
	*histories.Recorder
	port string // of the answers

	mu  sync.Mutex
	now map[string]*v1.Pod // the pods that are there
}

// TestStories: while the same happens to the same pods watchers see the same of them of numalet as of the stock
// kubelet, in the same order, and so do readers of events and the runtime. One side may skip what the
// other shows for a moment; what else differs is in meantHistories.
//
// What differs is told again alone before it counts: a busy machine makes long what is short.
// NUMALET_STORIES is a regular expression for the names of those to tell,
// NUMALET_STORIES_TRIES how often one is told at most. NUMALET_STORIES_PODS is how many further pods have
// several traits by chance: always the same, or others with each NUMALET_ORDERS_SEED.
func TestStories(t *testing.T) {
	port, servers := newAnswers(t, len(agents))
	var sides []*storySide
	for i, agent := range agents {
		sides = append(sides, newStorySide(t, agent, fmt.Sprint(port), servers[i]))
	}
	all := slices.DeleteFunc(slices.Concat(stories(), restartStories(), chanceStories(t, port)), func(s story) bool {
		return !chosen(t).MatchString(s.name)
	})
	lives := func(s story) bool { return s.later == nil }
	meant, tries := &histories.Comparison{Meant: meantHistories}, int(harness.Number(t, "NUMALET_STORIES_TRIES", 3))
	for _, some := range [][]story{slices.DeleteFunc(slices.Clone(all), func(s story) bool {
		return !lives(s)
	}), slices.DeleteFunc(all, lives)} {
		wrong := tellAll(t, sides, some, meant, 1)
		for try := 2; try <= tries && len(wrong) > 0; try++ {
			again := slices.DeleteFunc(slices.Clone(some), func(s story) bool {
				return !slices.ContainsFunc(wrong, func(w string) bool { return strings.HasPrefix(w, s.name+",") })
			})
			t.Logf("told again:\n%s", strings.Join(wrong, "\n"))
			wrong = tellAll(t, sides, again, meant, try)
		}
		for _, w := range wrong {
			t.Error(w)
		}
	}
}

// newStorySide starts a side and records its pods.
func newStorySide(t *testing.T, agent, port string, asked *answers) *storySide {
	t.Helper()
	s := &storySide{port: port, side: newSideWith(t, agent, map[string]any{
		"crashLoopBackOff": map[string]any{"maxContainerRestartPeriod": "4s"},
		"syncFrequency":    "1s", // the kubelet looks again that often
		"registryPullQPS":  0,
		"kubeAPIQPS":       500, "kubeAPIBurst": 1000,
	}), now: map[string]*v1.Pod{}}
	s.answers = asked
	s.Recorder = histories.New(s.plain)
	follow(t, s.Cluster, "pods", s.Namespace, func(pod *v1.Pod, gone bool) {
		s.Recorder.Pod(pod, gone)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.now[pod.Name] = pod; gone {
			delete(s.now, pod.Name)
		}
	})
	follow(t, s.Cluster, "events", s.Namespace, func(event *v1.Event, gone bool) {
		if !gone {
			s.Event(event)
		}
	})
	return s
}

// chanceStories are of pods with several traits by chance, as in TestOrders, that the API server takes.
func chanceStories(t *testing.T, port int) (out []story) {
	t.Helper()
	seed := harness.Number(t, "NUMALET_ORDERS_SEED", 1795356351761480071)
	several := int(harness.Number(t, "NUMALET_STORIES_PODS", 20))
	for _, pod := range severalTraits(rand.New(rand.NewPCG(seed, 1)), simTraits(asking{port}), several) {
		pod.Name, pod.Spec.NodeName = strings.Replace(pod.Name, "several", "chance", 1), ""
		out = append(out, story{name: pod.Name, whole: pod, steps: []step{{until: isSettled, stay: firstProbes}}})
	}
	return out
}

// chosen matches the names of the stories to tell.
func chosen(t *testing.T) *regexp.Regexp {
	t.Helper()
	is, err := regexp.Compile(os.Getenv("NUMALET_STORIES"))
	if err != nil {
		t.Fatalf("NUMALET_STORIES: %v", err)
	}
	return is
}

// tellAll tells stories on both sides at once and says how what was seen differs. It waits for events that
// come late.
func tellAll(t *testing.T, sides []*storySide, all []story, c *histories.Comparison, try int) []string {
	t.Helper()
	onBoth(t, sides, all, func(s *storySide, one story) error {
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
	if slices.ContainsFunc(all, func(s story) bool { return s.later != nil }) {
		for _, s := range sides {
			s.Kill()
		}
		onBoth(t, sides, all, func(s *storySide, one story) error {
			return s.act(t.Context(), one.down, one.podName(try, s))
		})
		for _, s := range sides {
			s.Start()
		}
		onBoth(t, sides, all, func(s *storySide, one story) error {
			name := one.podName(try, s)
			if err := s.tell(t.Context(), one.later, name); err != nil {
				return err
			}
			return s.end(t.Context(), one, name)
		})
	}
	var wrong []string
	for began := time.Now(); ; time.Sleep(500 * time.Millisecond) {
		ours := sides[0].Histories(sides[0].Runtime.Journal(0))
		theirs := sides[1].Histories(sides[1].Runtime.Journal(0))
		c.Know(histories.Ours, ours)
		c.Know(histories.Theirs, theirs)
		late := max(sides[0].Late(sides[0].Runtime.Journal(0)), sides[1].Late(sides[1].Runtime.Journal(0)))
		c.Shortly = shortly + 2*late
		wrong = nil
		for _, one := range all {
			wrong = append(wrong, c.Pod(one.name, ours[one.podName(try, sides[0])],
				theirs[one.podName(try, sides[1])])...)
		}
		if len(wrong) == 0 || time.Since(began) > lateEvents {
			t.Logf("try %d: %d stories; seldom later than %v", try, len(all), late)
			return wrong
		}
	}
}

// shortly is for how long one side may show what the other does not, on a machine that is not busy.
const shortly = 1500 * time.Millisecond

// lateEvents is how long events may take to come.
const lateEvents = 5 * time.Second

// onBoth does something for each story on each side, at once.
func onBoth(t *testing.T, sides []*storySide, all []story, do func(*storySide, story) error) {
	t.Helper()
	var group sync.WaitGroup
	for _, s := range sides {
		for _, one := range all {
			group.Go(func() {
				if err := do(s, one); err != nil {
					t.Errorf("%s: story %s: %v", s.Name, one.name, err)
				}
			})
		}
	}
	group.Wait()
}

// podName is that of the story's pod when it is told for the so manyth time.
func (one story) podName(try int, s *storySide) string {
	name := one.name
	if try > 1 {
		name += fmt.Sprint("-try", try)
	}
	if one.static {
		name += "-" + s.Name
	}
	return name
}

// pod is the story's pod on a side.
func (one story) pod(try int, s *storySide) (*v1.Pod, error) {
	pod := ordinaryPod(one.podName(try, s))
	if one.whole != nil {
		return s.renamed(one.whole, pod.Name)
	}
	spec := strings.NewReplacer("APP", rootImage, "POD", pod.Name, "PORT", s.port, "ANSWERS",
		s.answers.address).Replace(one.spec)
	if err := yaml.UnmarshalStrict([]byte(spec), &pod.Spec); err != nil {
		return nil, err
	}
	for script := range strings.SplitSeq(one.scripts, ";") {
		container, text, is := strings.Cut(script, ":")
		if is {
			pod.Annotations[sim.AnnotationPrefix+strings.TrimSpace(container)] = strings.TrimSpace(text)
		}
	}
	return pod, nil
}

// renamed is a pod of both sides as one of this side, with another name wherever its own stands.
func (s *storySide) renamed(pod *v1.Pod, name string) (*v1.Pod, error) {
	raw, err := json.Marshal(pod)
	out := &v1.Pod{}
	if err == nil {
		err = json.Unmarshal([]byte(strings.NewReplacer(pod.Name, name, sideAddress,
			s.answers.address).Replace(string(raw))), out)
	}
	return out, err
}

// begin makes the pod: in the API server, or a manifest of it.
func (s *storySide) begin(ctx context.Context, one story, try int) error {
	pod, err := one.pod(try, s)
	if err != nil {
		return err
	}
	if one.static {
		pod.Name, pod.Namespace = strings.TrimSuffix(pod.Name, "-"+s.Name), s.Namespace
		return s.manifest(pod)
	}
	pod.Spec.NodeName = s.Name
	added := pod.Spec.EphemeralContainers
	pod.Spec.EphemeralContainers = nil
	_, err = s.Client.CoreV1().Pods(s.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err == nil && len(added) > 0 {
		err = s.add(ctx, pod.Name, added)
	}
	return err
}

// manifest writes a static pod's.
func (s *storySide) manifest(pod *v1.Pod) error {
	pod.APIVersion, pod.Kind = "v1", "Pod"
	raw, err := yaml.Marshal(pod)
	if err == nil {
		s.Node.Pod(pod.Name, string(raw))
	}
	return err
}

// tell goes through the steps of a story.
func (s *storySide) tell(ctx context.Context, steps []step, pod string) error {
	for i, one := range steps {
		if err := s.await(ctx, pod, one); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
		if err := s.act(ctx, one.do, pod); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

// await waits until the pod is as the step wants it, and has been for as long.
func (s *storySide) await(ctx context.Context, pod string, one step) error {
	began, since := time.Now(), time.Time{}
	for {
		now := s.seen(pod)
		switch {
		case one.until != nil && (now == nil || !one.until(now)):
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		}
		if !since.IsZero() && time.Since(since) >= one.stay {
			return nil
		}
		if time.Since(began) > harness.Patience {
			return fmt.Errorf("waited %v in vain; the pod is %+v", harness.Patience, now)
		}
		if !sleep(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (s *storySide) act(ctx context.Context, do act, pod string) error {
	if do == nil {
		return nil
	}
	return do(ctx, s, pod)
}

// seen is the pod as it was seen last; nil: it is not there.
func (s *storySide) seen(pod string) *v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now[pod]
}

// end removes the pod, and waits until it is gone and stopped.
func (s *storySide) end(ctx context.Context, one story, pod string) error {
	if one.static {
		err := os.Remove(filepath.Join(s.Manifests, strings.TrimSuffix(pod, "-"+s.Name)+".yaml"))
		if err != nil && !os.IsNotExist(err) {
			return err
		}
	} else if now := s.seen(pod); now != nil && now.DeletionTimestamp == nil {
		if err := remove(-1)(ctx, s, pod); err != nil {
			return err
		}
	}
	for began := time.Now(); ; {
		if s.seen(pod) == nil && !s.ready(pod) {
			return nil
		}
		if time.Since(began) > harness.Patience {
			return fmt.Errorf("waited %v in vain until it is gone", harness.Patience)
		}
		if !sleep(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// ready reports whether a sandbox of the pod is.
func (s *storySide) ready(pod string) bool {
	return slices.ContainsFunc(s.Runtime.State().Sandboxes, func(sb sim.Sandbox) bool {
		return sb.Pod == pod && sb.Ready
	})
}
