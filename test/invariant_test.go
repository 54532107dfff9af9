package test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	pluginsim "github.com/numalet/numalet/cmd/numalet-lab/sim"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/test/harness"
)

// The number of the playground machine's CPUs for pods, and the resources of its plugins.
const (
	assignableCPUs = harness.AssignableCPUs
	gpu            = "example.com/gpu"
	nic            = "example.com/nic"
)

// workload describes one desired pod. Its containers state in their environment what they should
// have, so that a monitor can check them without knowing the pod.
type workload struct {
	name string
	// uid stays the same if the pod is changed in place. If it is empty, the agent derives the UID
	// from the manifest, so a change makes another pod.
	uid        string
	generation int
	main       need
	init       *need // runs for a moment
	sidecar    *need
	// mayLackMemory is set if the pod may be rejected because no nodes have memory for it.
	mayLackMemory bool
}

// need describes what one container requests.
type need struct {
	cpus      string // whole numbers are exclusive CPUs
	gpus      int
	nics      int
	memory    string // "" stands for 64Mi
	pages     string // huge pages of 2Mi; "" for none
	script    string // what the simulated runtime does with it
	noRestart bool
}

// exclusive returns how many exclusive CPUs the container has.
func (n need) exclusive() int {
	count, err := strconv.Atoi(n.cpus)
	if err != nil {
		return 0
	}
	return count
}

func (n need) devices() map[string]int { return map[string]int{gpu: n.gpus, nic: n.nics} }

// node returns the pod's name on the node.
func (w workload) node() string { return w.name + "-node" }

// image tells generations of a container apart: if only the image changes, the container is
// replaced.
func (w workload) image() string { return fmt.Sprintf("sim.local/app:%d", w.generation) }

// running returns the containers that run if all is well.
func (w workload) running() map[string]need {
	out := map[string]need{"main": w.main}
	if w.sidecar != nil {
		out["sidecar"] = *w.sidecar
	}
	return out
}

// held returns what the pod holds permanently, by container.
func (w workload) held() map[string]need {
	out := w.running()
	if w.init != nil {
		out["init"] = *w.init
	}
	return out
}

func (w workload) manifest() string {
	pod := v1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: w.name, UID: types.UID(w.uid), Annotations: map[string]string{},
		},
		Spec: v1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To(int64(2)),
			Containers:                    []v1.Container{w.container("main", w.main)},
		},
	}
	if w.main.noRestart {
		pod.Spec.RestartPolicy = v1.RestartPolicyNever
	}
	if w.sidecar != nil {
		c := w.container("sidecar", *w.sidecar)
		c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	if w.init != nil {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, w.container("init", *w.init))
	}
	for name, n := range w.held() {
		if n.script != "" {
			pod.Annotations[crisim.AnnotationPrefix+name] = n.script
		}
	}
	raw, err := yaml.Marshal(pod)
	if err != nil {
		panic(err) // a Pod can always be encoded
	}
	return string(raw)
}

func (w workload) container(name string, n need) v1.Container {
	limits := v1.ResourceList{v1.ResourceCPU: resource.MustParse(n.cpus)}
	env := []v1.EnvVar{{Name: "CHECK_CPUS", Value: strconv.Itoa(n.exclusive())}}
	for name, size := range n.amounts() {
		limits[name] = *resource.NewQuantity(int64(size), resource.BinarySI)
		env = append(env, v1.EnvVar{Name: checkEnv[name], Value: strconv.FormatUint(size, 10)})
	}
	for name, count := range n.devices() {
		if count > 0 {
			limits[v1.ResourceName(name)] = *resource.NewQuantity(int64(count), resource.DecimalSI)
			env = append(env, v1.EnvVar{Name: "CHECK_" + pluginsim.EnvName(name),
				Value: strconv.Itoa(count)})
		}
	}
	slices.SortFunc(env, func(a, b v1.EnvVar) int { return strings.Compare(a.Name, b.Name) })
	return v1.Container{
		Name: name, Image: w.image(), Env: env,
		Resources: v1.ResourceRequirements{Limits: limits},
	}
}

// Shorter names for what the runtime's containers have.
var (
	nameOf    = harness.NameOf
	alone     = harness.Alone
	cpusOf    = harness.CPUsOf
	devicesOf = harness.DevicesOf
)

// monitor checks, at every change that the runtime makes, what must hold at all times:
//
//   - an exclusive CPU of a running container is in no other running container's cpuset;
//   - a device belongs to at most one running container;
//   - a container has as many CPUs and devices as it requested;
//   - under the static memory policy, each container's memory is on a group of nodes that overlaps
//     no other group and has as much memory as was promised of it;
//   - no container of a pod runs twice;
//   - no container ends whose pod must be left alone.
type monitor struct {
	mu     sync.Mutex
	live   map[string]crisim.Container // by id
	alone  map[string]bool             // names of pods to be left alone
	broken []string
	memory bool // the memory policy is static
}

// monitored starts a monitor of the node's runtime. What it finds fails the test at its end.
func monitored(t testing.TB, n *harness.Node) *monitor {
	m := &monitor{live: map[string]crisim.Container{}, alone: map[string]bool{}}
	n.Runtime.Watch(m.changed)
	t.Cleanup(func() { m.check(t) })
	return m
}

// check reports what was found so far, each finding once.
func (m *monitor) check(t testing.TB) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, what := range m.broken {
		t.Error(what)
	}
	m.broken = nil
}

// leaveAlone sets whether it is an error from now on if a container of the pod ends.
func (m *monitor) leaveAlone(pod string, alone bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.alone[pod] = alone
}

// changed is called by the runtime.
func (m *monitor) changed(c crisim.Container) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ran := m.live[c.Subject.ID]
	if !c.Running() {
		delete(m.live, c.Subject.ID)
		if ran && m.alone[c.Subject.Pod] {
			m.foundLocked("%s ended (%s) though nobody touched its pod", nameOf(c), c.State)
		}
		return
	}
	m.live[c.Subject.ID] = c
	m.has(c)
	if m.memory {
		m.remembersLocked()
	}
	for _, other := range m.live {
		if other.Subject.ID != c.Subject.ID {
			m.compare(c, other)
		}
	}
}

func (m *monitor) foundLocked(format string, args ...any) {
	if len(m.broken) < 20 {
		m.broken = append(m.broken, "invariant broken: "+fmt.Sprintf(format, args...))
	}
}

// has checks a container by itself.
func (m *monitor) has(c crisim.Container) {
	if n := alone(c); n > 0 && cpusOf(c).Size() != n {
		m.foundLocked("%s has CPUs %q, wants %d of its own", nameOf(c), c.CPUs, n)
	}
	for _, name := range []string{gpu, nic} {
		want, _ := strconv.Atoi(c.Env()["CHECK_"+pluginsim.EnvName(name)])
		if got := devicesOf(c, name); len(got) != want {
			m.foundLocked("%s has %s %q, wants %d", nameOf(c), name, got, want)
		}
	}
}

func (m *monitor) compare(a, b crisim.Container) {
	for _, what := range harness.Clashes(a, b, gpu, nic) {
		m.foundLocked("%s", what)
	}
}

// assigned reads the state file. A corrupt file fails the test.
func assignedState(t testing.TB, n *harness.Node) allocation.State {
	t.Helper()
	state, err := n.Assigned()
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// settled returns an error unless the node runs the workloads and has nothing else left.
func converged(t testing.TB, n *harness.Node, want []workload) error {
	t.Helper()
	pods, err := n.Pods()
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for _, w := range want {
		pod, ok := pods[w.node()]
		if lacksMemory(w, pod) {
			continue
		}
		names[w.node()] = true
		if !ok || pod.Status.Phase != v1.PodRunning || pod.Status.Reason != "" {
			return fmt.Errorf("pod %s is %q: %s %s", w.node(), pod.Status.Phase,
				pod.Status.Reason, pod.Status.Message)
		}
	}
	if len(pods) != len(want) {
		return fmt.Errorf("/pods has %d pods, want %d", len(pods), len(want))
	}
	state := n.Runtime.State()
	for _, s := range state.Sandboxes {
		if !names[s.Pod] {
			return fmt.Errorf("the runtime has a sandbox of %s", s.Pod)
		}
	}
	given := assignedState(t, n)
	shared := cpusOf(crisim.Container{}).Difference(given.CPUs())
	for _, c := range state.Running() {
		if alone(c) == 0 && !cpusOf(c).Equals(shared) {
			return fmt.Errorf("%s runs on %s, the shared pool is %s", nameOf(c), c.CPUs, shared)
		}
	}
	for _, w := range want {
		if lacksMemory(w, pods[w.node()]) {
			continue
		}
		if err := runs(w, state, given.Pods[pods[w.node()].UID]); err != nil {
			return fmt.Errorf("pod %s: %w", w.node(), err)
		}
		delete(given.Pods, pods[w.node()].UID)
	}
	for _, p := range given.Pods {
		return fmt.Errorf("the state file has pod %s (%s)", p.Name, p.UID)
	}
	return nil
}

// runs compares what the pod's containers have with what the state file records.
func runs(w workload, state crisim.State, given allocation.Pod) error {
	for name, n := range w.running() {
		c, ok := state.Container(w.node(), name)
		if !ok || !c.Running() || c.Subject.UID != string(given.UID) && given.UID != "" {
			return fmt.Errorf("container %s does not run", name)
		}
		if got := c.Config.GetImage().GetUserSpecifiedImage(); got != w.image() {
			return fmt.Errorf("container %s has image %s, want %s", name, got, w.image())
		}
		if n.exclusive() > 0 && !cpusOf(c).Equals(given.Containers[name].CPUs()) {
			return fmt.Errorf("container %s runs on %s, the state file says %s", name, c.CPUs,
				given.Containers[name].CPUs())
		}
		if err := remembered(c, n, given.Containers[name]); err != nil {
			return fmt.Errorf("memory of container %s: %w", name, err)
		}
		for resource, count := range n.devices() {
			if got := devicesOf(c, resource); len(got) != count ||
				!sameIDs(got, given.Containers[name], resource) {
				return fmt.Errorf("container %s has %s %q, the state file says %v", name, resource,
					got, given.Containers[name].Devices())
			}
		}
	}
	return nil
}

func sameIDs(got []string, given allocation.Container, resource string) bool {
	for _, d := range given.Devices() {
		if d.Resource == resource {
			return slices.Equal(slices.SortedFunc(slices.Values(got), devicemanager.CompareIDs),
				d.IDs)
		}
	}
	return len(got) == 0
}
