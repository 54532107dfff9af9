package admission

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/exhaustive"
	"github.com/numalet/numalet/topology/podspec"
)

const (
	kubeletNodes = 120
	kubeletSteps = 60
)

// naive admits one pod after the other as the kubelet does: the device manager and the CPU manager
// place each container in turn, the topology manager in front of them, and then the sum of the
// requests is compared with the node. Nothing waits, and what a terminating pod holds is in use
// until it is gone.
type naive struct {
	hardware  machine.Hardware
	policy    topology.Policy
	scope     topology.Scope
	inventory map[string]devicemanager.Resource
	pods      map[types.UID]naivePod
}

type naivePod struct {
	spec       *v1.Pod
	containers map[string]naiveHeld
}

// naiveHeld is what a container got, in words, so that it can be compared.
type naiveHeld struct {
	cpus    cpuset.CPUSet
	devices map[string][]string
}

// errNaive is a refusal that is the kubelet's whole sentence: reason, colon, message.
func errNaive(reason, format string, args ...any) error {
	return errors.New(reason + ": " + fmt.Sprintf(format, args...))
}

// submit is the outcome, "" for a pod that is admitted.
func (n *naive) submit(pod *v1.Pod) error {
	for _, s := range securityOf(pod).Sysctls {
		return errNaive("SysctlForbidden", "%s", s.Name)
	}
	w := &naiveWork{naive: n, pod: pod, got: map[string]naiveHeld{}}
	w.taken, w.reuse = map[string]sets.Set[string]{}, map[string]sets.Set[string]{}
	var used cpuset.CPUSet
	for _, other := range n.pods {
		for _, held := range other.containers {
			used = used.Union(held.cpus)
			for name, ids := range held.devices {
				w.taken[name] = w.taken[name].Union(sets.New(ids...))
			}
		}
	}
	w.free = n.hardware.CPUs.Free(used)
	for _, c := range pod.Spec.InitContainers {
		if err := w.container(&c, !podspec.IsSidecar(&c)); err != nil {
			return err
		}
	}
	for _, c := range pod.Spec.Containers {
		if err := w.container(&c, false); err != nil {
			return err
		}
	}
	if err := n.fits(pod); err != nil {
		return err
	}
	n.pods[pod.UID] = naivePod{pod, w.got}
	return nil
}

func securityOf(pod *v1.Pod) v1.PodSecurityContext {
	if pod.Spec.SecurityContext == nil {
		return v1.PodSecurityContext{}
	}
	return *pod.Spec.SecurityContext
}

// fits is the last check: pods, cpu, memory, and then the others but those that a plugin has
// registered.
func (n *naive) fits(pod *v1.Pod) error {
	want := podspec.Requests(pod)
	names, unknown := []string{"pods", "cpu", "memory"}, []string(nil)
	for _, key := range slices.Sorted(maps.Keys(want)) {
		name := string(key)
		_, known := n.inventory[name]
		switch {
		case known || slices.Contains(names, name):
		case strings.Contains(name, "/"):
			unknown = append(unknown, name)
		default:
			names = append(names, name)
		}
	}
	names = append(names, unknown...)
	for _, name := range names {
		key := v1.ResourceName(name)
		var used resource.Quantity
		for _, other := range n.pods {
			used.Add(podspec.Requests(other.spec)[key])
		}
		sum, have, asked := used.DeepCopy(), n.hardware.Allocatable[key], want[key]
		sum.Add(asked)
		if asked.IsZero() || sum.Cmp(have) <= 0 {
			continue
		}
		amount := func(q resource.Quantity) int64 {
			if name == "cpu" {
				return q.MilliValue()
			}
			return q.Value()
		}
		return errNaive("OutOf"+name, "Node didn't have enough resource: %s, requested: %d, "+
			"used: %d, capacity: %d", name, amount(asked), amount(used), amount(have))
	}
	return nil
}

// naiveWork places one pod.
type naiveWork struct {
	*naive
	pod          *v1.Pod
	free, reused cpuset.CPUSet
	taken, reuse map[string]sets.Set[string]
	hint         *topology.Hint // of the pod
	got          map[string]naiveHeld
}

func (w *naiveWork) container(c *v1.Container, gone bool) error {
	counts := map[string]int{}
	for name, q := range c.Resources.Limits {
		if _, known := w.inventory[string(name)]; known && q.Value() > 0 {
			counts[string(name)] = int(q.Value())
		}
	}
	cpus := cpumanager.Exclusive(w.pod, c, topology.Rules{})
	hint, err := w.align(counts, cpus)
	if err != nil {
		return err
	}
	held := naiveHeld{devices: map[string][]string{}}
	unexpected := func(err error) error {
		return errNaive("UnexpectedAdmissionError",
			"Allocate failed due to %v, which is unexpected", err)
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		req := w.request(name, counts[name])
		req.Hint = hint
		ids, err := devicemanager.Choose(req)
		if err != nil {
			return unexpected(err)
		}
		held.devices[name] = ids
		w.taken[name] = w.taken[name].Union(sets.New(ids...))
		w.reuse[name] = after(w.reuse[name], sets.New(ids...), gone)
	}
	if cpus > 0 {
		if held.cpus, err = w.hardware.CPUs.Choose(w.free, w.reused, cpus, hint); err != nil {
			return unexpected(err)
		}
		w.free = w.free.Difference(held.cpus)
		if gone {
			w.reused = w.reused.Union(held.cpus)
		} else {
			w.reused = w.reused.Difference(held.cpus)
		}
	}
	w.got[c.Name] = held
	return nil
}

func after(reuse, ids sets.Set[string], gone bool) sets.Set[string] {
	if gone {
		return reuse.Union(ids)
	}
	return reuse.Difference(ids)
}

func (w *naiveWork) request(name string, count int) devicemanager.Request {
	return devicemanager.Request{
		Resource: w.inventory[name], N: count, Taken: w.taken[name],
		Reusable: sets.List(w.reuse[name]),
	}
}

// align is the topology manager: a hint for the container, or once for the pod.
func (w *naiveWork) align(counts map[string]int, cpus int) (topology.Hint, error) {
	switch {
	case w.policy == topology.None:
		return topology.Hint{Any: true, Preferred: true}, nil
	case w.scope == topology.PodScope && w.hint != nil:
		return *w.hint, nil
	case w.scope == topology.PodScope:
		counts, cpus = map[string]int{}, cpumanager.PodExclusive(w.pod, topology.Rules{})
		for name := range w.inventory {
			if most := w.most(name); most > 0 {
				counts[name] = most
			}
		}
	}
	nodes := w.hardware.Machine.NodeSet()
	offers := make([][]topology.ResourceHints, 2)
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if supply, ok := devicemanager.Supply(nodes, w.request(name, counts[name])); ok {
			offers[0] = append(offers[0], topology.ResourceHints{
				Resource: name, Hints: supply.Hints(),
			})
		}
	}
	if cpus > 0 {
		offers[1] = append(offers[1], topology.ResourceHints{
			Resource: "cpu", Hints: w.hardware.CPUs.Supply(w.free, w.reused, cpus).Hints(),
		})
	}
	merged := exhaustive.Merge(w.policy, nodes, offers, nil)
	if !merged.Admit {
		return topology.Hint{}, errNaive("TopologyAffinityError",
			"Resources cannot be allocated with Topology locality")
	}
	w.hint = &merged.Hint
	return merged.Hint, nil
}

// most is how many devices the pod has at once: those that stay, or those that stay until an init
// container and its own.
func (w *naiveWork) most(name string) int {
	stay, most := 0, 0
	count := func(c v1.Container) int {
		q := c.Resources.Limits[v1.ResourceName(name)]
		return int(q.Value())
	}
	for _, c := range w.pod.Spec.InitContainers {
		most = max(most, stay+count(c))
		if podspec.IsSidecar(&c) {
			stay += count(c)
		}
	}
	for _, c := range w.pod.Spec.Containers {
		stay += count(c)
	}
	return max(most, stay)
}

// Without a wait, every outcome is the kubelet's, with its words, and so is what pods hold; but for
// pods that have a place if one looks ahead.
func TestWithoutAWaitItIsTheKubelet(t *testing.T) {
	seen, machines := map[string]int{}, smallMachines(t)
	for i := range among(kubeletNodes) {
		w := world{Rand: rand.New(rand.NewPCG(11, uint64(i)))}
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) { compareWithNaive(t, w, dir, machines, seen) })
		if t.Failed() {
			t.Fatalf("on node %d", i)
		}
	}
	t.Log(seen)
	for _, reason := range []string{
		"", "UnexpectedAdmissionError", "TopologyAffinityError", "OutOfcpu", "OutOfmemory",
		"OutOfpods", "OutOfexample.com/gpu", "SysctlForbidden", "looked ahead",
	} {
		if seen[reason] < among(5) {
			t.Errorf("%d cases of %q are too few to mean anything", seen[reason], reason)
		}
	}
}

func compareWithNaive(t *testing.T, w world, dir string, machines []*topology.Machine,
	seen map[string]int) {
	n := &naive{pods: map[types.UID]naivePod{}}
	m := w.machine(t, machines)
	w.plugins = &plugins{}
	w.desk = open(t, dir, w.plugins, func(c *Config) {
		w.configure(t, c, m)
		c.Wait = 0
		reserved := cpuset.New(m.Online().List()[0])
		static, err := cpumanager.NewStatic(m, reserved, cpumanager.Options{})
		if err != nil {
			t.Fatal(err)
		}
		h := machine.Hardware{Machine: m, CPUs: static, Allocatable: c.Hardware().Allocatable}
		c.Hardware = func() machine.Hardware { return h }
		c.Rules.Strategy = topology.LowestNodes
		n.hardware, n.policy, n.scope = h, c.Rules.Policy, c.Rules.Scope
	})
	defer w.desk.stop()
	w.offer(n, m)
	leaving := sets.New[types.UID]()
	for i := range kubeletSteps {
		switch uids := slices.Sorted(maps.Keys(n.pods)); {
		case w.IntN(8) == 0:
			w.offer(n, m)
			w.desk.queue.Poke()
		case len(uids) > 1 && w.IntN(3) == 0:
			uid := uids[w.IntN(len(uids))]
			if leaving.Has(uid) {
				w.desk.queue.Release(uid)
				delete(n.pods, uid)
				break
			}
			leaving.Insert(uid)
			w.desk.queue.Leaving(uid, false)
		default:
			pod := w.pod(types.UID(fmt.Sprint("p", i)))
			if w.IntN(3) == 0 {
				w.begin(pod)
			}
			w.submitBoth(t, n, pod, seen)
		}
		synctest.Wait()
	}
}

// offer changes what the plugins offer. To the kubelet, the devices of a plugin that is away are
// unhealthy.
func (w *world) offer(n *naive, m *topology.Machine) {
	w.inventory(m)
	n.inventory = map[string]devicemanager.Resource{}
	for name, r := range w.plugins.Inventory().Resources {
		r.Options.Preferred = false
		w.plugins.set(r)
		if !r.Connected {
			r.Devices = slices.Clone(r.Devices)
			for i, d := range r.Devices {
				r.Devices[i] = &devicemanager.Device{ID: d.ID, Nodes: d.Nodes}
			}
		}
		n.inventory[name] = r
	}
	for name, r := range n.inventory {
		if !r.Connected {
			away := r
			w.plugins.set(away)
			r.Connected = true
			n.inventory[name] = r
		}
	}
}

func (w *world) submitBoth(t *testing.T, n *naive, pod *v1.Pod, seen map[string]int) {
	want, reason := string(pod.UID)+" Admit", ""
	err := n.submit(pod)
	if err != nil {
		want = string(pod.UID) + " Reject: " + err.Error()
		reason, _, _ = strings.Cut(err.Error(), ":")
	}
	seen[reason]++
	w.desk.queue.Submit(pod, false)
	synctest.Wait()
	got := strings.Join(w.desk.hear(), "\n")
	if reason == "SysctlForbidden" {
		got, _, _ = strings.Cut(got, ": forbidden")
		want = got[:min(len(got), len(want))]
	}
	ahead := err != nil && got == string(pod.UID)+" Admit"
	if got != want && !ahead {
		t.Fatalf("said:\n%s\nthe kubelet:\n%s\nof %v\nwith %s %s",
			got, want, spec(pod), n.policy, n.scope)
	}
	held := map[string]naiveHeld{}
	for name, c := range w.desk.store.State().Pods[pod.UID].Containers {
		h := naiveHeld{cpus: c.CPUs(), devices: map[string][]string{}}
		for _, d := range c.Devices() {
			h.devices[d.Resource] = d.IDs
		}
		held[name] = h
	}
	if ahead {
		seen["looked ahead"]++
		if wrong := n.lookedAhead(pod, held); wrong != "" {
			t.Fatalf("the kubelet said %v of %v with %s %s, and it has %v: %s", err, spec(pod),
				n.policy, n.scope, held, wrong)
		}
		n.pods[pod.UID] = naivePod{pod, held}
	}
	for name, h := range n.pods[pod.UID].containers {
		if o := held[name]; o.cpus.String() != h.cpus.String() ||
			len(o.devices)+len(h.devices) > 0 && !reflect.DeepEqual(o.devices, h.devices) {
			t.Fatalf("pod %s holds %v, the kubelet %v", pod.UID, held, n.pods[pod.UID].containers)
		}
	}
}
