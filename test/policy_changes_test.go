package test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation"
	pluginsim "github.com/numalet/numalet/cmd/numalet-lab/sim"
	cpucheckpoint "github.com/numalet/numalet/cpumanager/checkpoint"
	devicecheckpoint "github.com/numalet/numalet/deviceplugin/checkpoint"
	"github.com/numalet/numalet/test/harness"
	memorystate "github.com/numalet/numalet/topology/memory/state"
)

// policies holds one policy of each of the three managers.
type policies struct{ cpu, memory, topology string }

func (p policies) String() string { return p.cpu + "+" + p.memory + "+" + p.topology }

func allPolicies() (out []policies) {
	for _, cpu := range []string{"none", "static"} {
		for _, memory := range []string{"None", "Static"} {
			for _, topology := range []string{"none", "best-effort", "restricted",
				"single-numa-node"} {
				out = append(out, policies{cpu, memory, topology})
			}
		}
	}
	return out
}

// differ counts the settings in which two policies differ.
func differ(a, b policies) (n int) {
	for _, is := range []bool{a.cpu != b.cpu, a.memory != b.memory, a.topology != b.topology} {
		if is {
			n++
		}
	}
	return n
}

// circuit returns a closed walk that visits each ordered pair of policies once (Hierholzer 1873) that
// differ in at most so many settings.
func circuit(all []policies, most int) (walk []policies) {
	left := map[policies][]policies{}
	for _, from := range all {
		for _, to := range all {
			if n := differ(from, to); n > 0 && n <= most {
				left[from] = append(left[from], to)
			}
		}
	}
	path := []policies{all[0]}
	for len(path) > 0 {
		at := path[len(path)-1]
		if next := left[at]; len(next) > 0 {
			left[at] = next[1:]
			path = append(path, next[0])
			continue
		}
		path = path[:len(path)-1]
		walk = append(walk, at)
	}
	slices.Reverse(walk)
	return walk
}

// TestEveryPolicyChange restarts agents between every ordered pair of the sixteen combinations of
// policies, with ten pods running; with -short between those that differ in one. migrant.check checks the
// invariants.
func TestEveryPolicyChange(t *testing.T) {
	const shards = 4
	most, pairs := 3, 240
	if testing.Short() {
		most, pairs = 1, 80
	}
	walk := circuit(allPolicies(), most)
	seen := map[[2]policies]bool{}
	for i := 1; i < len(walk); i++ {
		seen[[2]policies{walk[i-1], walk[i]}] = true
	}
	if len(seen) != pairs || len(walk) != pairs+1 {
		t.Fatalf("the walk has %d steps and %d pairs, want %d", len(walk)-1, len(seen), pairs)
	}
	for i := range shards {
		part := walk[i*pairs/shards : (i+1)*pairs/shards+1]
		t.Run(fmt.Sprintf("part %d", i), func(t *testing.T) {
			t.Parallel()
			// In the first part, which begins with policies none, no pod has exclusive resources yet.
			begin := part[0]
			if i > 0 { // under narrower policies the order of the pods would decide who is refused
				begin = policies{"static", "Static", "best-effort"}
			}
			m := newMigrant(t, begin)
			tried := map[policies]bool{}
			for _, p := range part {
				m.goesTo(p)
				m.check(p.String())
				if !tried[p] {
					m.admits(p.String())
				}
				tried[p] = true
			}
		})
	}
}

// migrant is a node with ten pods whose agent is restarted with other settings.
type migrant struct {
	*harness.Node
	t        *testing.T
	gpu, nic *pluginsim.Client
	policies policies

	asked    [2]int // calls of Allocate
	restarts map[string]int32
	// held is a container's assignment, by pod/container.
	held map[string]allocation.Container
	// online has the machine's online CPUs. Those in offLimits are not in the shared pool.
	online, offLimits cpuset.CPUSet
}

// tenPods are the running pods. Some would find no place under the narrower policies; they keep
// what they have.
var tenPods = map[string]string{
	"plain": plain("plain"),
	"burst": manifestOf("burst", "containers: [{name: main, image: sim.local/app, resources: "+
		"{requests: {cpu: 500m}, limits: {cpu: 2}}}]"),
	"part": limited("part", "cpu: 1500m, memory: 1Gi, "+nic+": 1"),
	"own":  limited("own", "cpu: 4, memory: 1Gi"),
	"card": limited("card", "cpu: 4, memory: 2Gi, "+gpu+": 2"),
	"only": manifestOf("only",
		"containers: [{name: main, image: sim.local/app, resources: {limits: {"+gpu+": 1}}}]"),
	"large":  limited("large", "cpu: 2, memory: 40Gi"),
	"pages":  limited("pages", "cpu: 1, memory: 1Gi, hugepages-2Mi: 512Mi"),
	"spread": limited("spread", "cpu: 18, memory: 70Gi"),
	"stages": manifestOf("stages", `initContainers:
  - {name: side, image: sim.local/app, restartPolicy: Always,
     resources: {limits: {cpu: 1, memory: 1Gi}}}
  - {name: init, image: sim.local/app, resources: {limits: {cpu: 4, memory: 2Gi, `+gpu+`: 1}}}
  containers:
  - {name: main, image: sim.local/app, resources: {limits: {cpu: 2, memory: 1Gi, `+gpu+`: 1}}}`,
		"init: exit=0 after=1ms"),
}

func newMigrant(t *testing.T, p policies) *migrant {
	n := harness.New(t)
	eager(n)
	staticMemory(n)
	m := &migrant{
		Node: n, t: t, held: map[string]allocation.Container{},
		online: cpus(t, "0-63"), offLimits: cpuset.New(),
	}
	m.set(p)
	n.Start()
	m.gpu, _ = n.Plugin(gpu, "--devices=16", "--nodes=0-3")
	m.nic, _ = n.Plugin(nic, "--devices=2", "--nodes=0-1")
	for name, text := range tenPods {
		n.Pod(name, text)
	}
	for name := range tenPods {
		if name != "spread" || p.topology == "none" || p.topology == "best-effort" {
			n.AwaitPhase(name+"-node", v1.PodRunning)
		}
	}
	m.asked, m.restarts = m.allocated(), restartCounts(t, n)
	m.check("start")
	return m
}

func (m *migrant) set(p policies) {
	m.policies = p
	m.Settings["cpuManagerPolicy"], m.Settings["memoryManagerPolicy"] = p.cpu, p.memory
	m.Settings["topologyManagerPolicy"] = p.topology
}

// goesTo restarts the agent with other policies.
func (m *migrant) goesTo(p policies) {
	m.t.Helper()
	m.restart(func() { m.set(p) })
}

// restart restarts the agent with other settings. Containers may only be updated.
func (m *migrant) restart(change func()) {
	m.t.Helper()
	m.Kill()
	since := lastCall(m.Node)
	change()
	m.Start()
	m.Eventually("the ten pods run", func() error {
		pods, err := m.Pods()
		if err != nil {
			return err
		}
		for name := range tenPods {
			if st := pods[name+"-node"].Status; st.Phase != v1.PodRunning ||
				len(st.ContainerStatuses) == 0 {
				return fmt.Errorf("%s is %q: %s %s", name, st.Phase, st.Reason, st.Message)
			}
		}
		return nil
	})
	m.Eventually("everything is in place", m.inPlace)
	for _, c := range m.Runtime.Journal(since) {
		if c.Method != "UpdateContainerResources" {
			m.t.Errorf("under %s the runtime was told: %+v", m.policies, c)
		}
	}
}

func (m *migrant) allocated() [2]int {
	return [2]int{allocations(m.t, m.gpu)[0], allocations(m.t, m.nic)[0]}
}

// check fails the test unless, after the restart with this name, no container was restarted, no
// plugin was asked, no two pods hold the same, and each pod keeps what it had.
func (m *migrant) check(name string) {
	m.t.Helper()
	if got := m.allocated(); got != m.asked {
		m.t.Errorf("%s: Allocate was called: %v, was %v", name, got, m.asked)
	}
	m.countsRestarts(name)
	m.Eventually("the state is sound", func() error { return m.sound() })
	m.Eventually("the kubelet's files are of the policies", m.exported)
	for key, c := range m.containers() {
		was, known := m.held[key]
		if known && fmt.Sprint(was) != fmt.Sprint(c) {
			m.t.Errorf("%s: %s had\n%+v and has\n%+v", name, key, was, c)
		}
		m.held[key] = c
	}
	for key := range m.held {
		if _, ok := m.containers()[key]; !ok {
			m.t.Errorf("%s: %s has nothing any more", name, key)
		}
	}
	if m.t.Failed() {
		m.t.FailNow()
	}
}

// countsRestarts waits until the statuses count the restarts that there were. Until a pod was looked
// at, its status is the kept one, which may be older.
func (m *migrant) countsRestarts(after string) {
	m.t.Helper()
	m.Eventually("restarts are counted", func() error {
		if diff := cmp.Diff(m.restarts, restartCounts(m.t, m.Node)); diff != "" {
			return fmt.Errorf("%s: restart counts (-want +got):\n%s", after, diff)
		}
		return nil
	})
}

// containers returns what each container with exclusive CPUs or devices holds.
func (m *migrant) containers() map[string]allocation.Container {
	out := map[string]allocation.Container{}
	for _, pod := range assignedState(m.t, m.Node).Pods {
		for name, c := range pod.Containers {
			if pod.Name != "extra-node" && (!c.CPUs().IsEmpty() || len(c.Devices()) > 0) {
				out[pod.Name+"/"+name] = c
			}
		}
	}
	return out
}

// sound returns an error if a CPU or device belongs to two pods of the state.
func (m *migrant) sound() error {
	taken, devices := cpuset.New(), sets.New[string]()
	for _, pod := range assignedState(m.t, m.Node).Pods {
		own := allocation.HoldingsOf(pod)
		if both := taken.Intersection(own.CPUs()); !both.IsEmpty() {
			return fmt.Errorf("CPUs %s are assigned twice", both)
		}
		taken = taken.Union(own.CPUs())
		for resource, ids := range own.Devices() {
			for id := range ids {
				if key := resource + "=" + id; devices.Has(key) {
					return fmt.Errorf("%s is assigned twice", key)
				}
				devices.Insert(resource + "=" + id)
			}
		}
	}
	return nil
}

// inPlace compares where containers run with the state. Under the static policy, containers with
// exclusive CPUs run on these and all others elsewhere; under none, all run everywhere.
func (m *migrant) inPlace() error {
	state := assignedState(m.t, m.Node)
	shared := m.online.Difference(state.CPUs()).Difference(m.offLimits)
	for _, c := range m.Runtime.State().Running() {
		want, own := shared, cpuset.New()
		for uid, pod := range state.Pods {
			if string(uid) == c.Subject.UID {
				own = pod.Containers[c.Subject.Container].CPUs()
			}
		}
		if !own.IsEmpty() {
			want = own.Intersection(m.online)
		}
		if m.policies.cpu == "none" {
			want = m.online
		}
		if has := cpusOf(c); !has.Intersection(m.online).Equals(want) && !want.IsEmpty() {
			return fmt.Errorf("%s runs on %s, want %s", nameOf(c), has, want)
		}
	}
	return nil
}

// exported checks the kubelet's files.
func (m *migrant) exported() error {
	state := assignedState(m.t, m.Node)
	raw, err := os.ReadFile(filepath.Join(m.Root, cpucheckpoint.FileName))
	if err != nil {
		return err
	}
	own, err := cpucheckpoint.Decode(raw)
	if err != nil {
		return err
	}
	if raw, err = os.ReadFile(filepath.Join(m.Root, memorystate.FileName)); err != nil {
		return err
	}
	memory, err := memorystate.Decode(raw)
	if err != nil {
		return err
	}
	if own.Policy != m.policies.cpu || memory.PolicyName != m.policies.memory {
		return fmt.Errorf("they are of the policies %s and %s", own.Policy, memory.PolicyName)
	}
	taken := cpuset.New()
	for _, containers := range own.Entries {
		for _, cpus := range containers {
			taken = taken.Union(cpus)
		}
	}
	want := state.CPUs()
	if own.Policy == "none" {
		want = cpuset.New()
	}
	if !taken.Equals(want) || own.Policy == "none" == (len(own.Default.List()) > 0) {
		return fmt.Errorf("CPUs %s are assigned, %s are not; want %s", taken, own.Default, want)
	}
	if static := memory.PolicyName == "Static"; static != (len(memory.Entries) > 0) {
		return fmt.Errorf("the memory of %d pods", len(memory.Entries))
	}
	return errors.Join(m.devicesExported()...)
}

// deviceFile reads the kubelet's device checkpoint.
func (m *migrant) deviceFile() ([]devicecheckpoint.PodDevicesEntry, map[string][]string, error) {
	raw, err := os.ReadFile(filepath.Join(m.Root, "device-plugins", devicecheckpoint.FileName))
	if err != nil {
		return nil, nil, err
	}
	return devicecheckpoint.Decode(raw)
}

func (m *migrant) devicesExported() (errs []error) {
	entries, _, err := m.deviceFile()
	if err != nil {
		return []error{err}
	}
	devices := sets.New[string]()
	for _, e := range entries {
		devices.Insert(e.IDs()...)
	}
	for _, pod := range assignedState(m.t, m.Node).Pods {
		for _, c := range pod.Containers {
			for _, d := range c.Devices() {
				if !devices.HasAll(d.IDs...) {
					errs = append(errs, fmt.Errorf("devices %v, which are assigned, are not "+
						"among %v", d.IDs, devices))
				}
			}
		}
	}
	return errs
}

// admits starts a new pod with exclusive CPUs, memory and a device, waits until it runs, and
// removes it.
func (m *migrant) admits(name string) {
	m.t.Helper()
	m.Eventually("the plugin is back", func() error {
		_, healthy, err := m.deviceFile()
		if len(healthy[gpu]) == 0 {
			err = errors.Join(err, errors.New("it has no devices"))
		}
		return err
	})
	m.Pod("extra", limited("extra", "cpu: 2, memory: 1Gi, "+gpu+": 1"))
	m.AwaitPhase("extra-node", v1.PodRunning)
	c := container(m.t, m.Node, "extra-node", "main")
	if got := cpusOf(c).Size(); got != 2 && m.policies.cpu == "static" ||
		len(devicesOf(c, gpu)) != 1 {
		m.t.Errorf("%s: a new pod runs on %q with %v", name, c.CPUs, devicesOf(c, gpu))
	}
	if static := m.policies.memory == "Static"; static == (c.Mems == "") {
		m.t.Errorf("%s: a new pod has its memory on %q", name, c.Mems)
	}
	m.Eventually("everybody has made room", m.inPlace)
	if err := m.sound(); err != nil {
		m.t.Error(err)
	}
	m.RemovePod("extra")
	m.AwaitGone("extra-node")
	m.Eventually("nothing is left of it", func() error {
		if pod, held := byName(assignedState(m.t, m.Node))["extra-node"]; held {
			return fmt.Errorf("it holds %+v", pod)
		}
		return m.inPlace()
	})
	m.asked = m.allocated()
}
