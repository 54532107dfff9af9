package test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/test/harness"
)

// killRounds is the number of kills, settleEvery the number after which everything must settle. To
// repeat a run, set NUMALET_KILL_SEED to the seed that it logged; NUMALET_KILL_ROUNDS changes the
// number of rounds.
const (
	killRounds  = 200
	settleEvery = 20
)

// The agent may be killed at any moment: a random schedule adds, changes and removes pods while the
// agent is killed and restarted on the same directory. Runtime and plugins live on. The monitor
// checks the invariants at each change that the runtime makes. The desired result is checked
// whenever the agent gets time to settle.
func TestKilledAtRandomMoments(t *testing.T) {
	t.Parallel()
	seed := harness.Number(t, "NUMALET_KILL_SEED", rand.Uint64())
	rounds := int(harness.Number(t, "NUMALET_KILL_ROUNDS", killRounds))
	t.Logf("NUMALET_KILL_SEED=%d", seed)
	n := harness.New(t)
	k := &killer{
		Node: n, t: t, random: rand.New(rand.NewPCG(seed, 0)),
		monitor: monitored(t, n), desired: map[string]workload{},
	}
	staticMemory(n)
	k.monitor.memory = true
	slowRuntime(t, n)
	n.Plugin(gpu, "--devices=8", "--nodes=0-3")
	n.Plugin(nic, "--devices=4", "--nodes=0-3")
	for round := range rounds {
		k.round()
		k.monitor.check(t)
		if t.Failed() {
			t.Fatalf("after the kill of round %d", round)
		}
		if (round+1)%settleEvery == 0 {
			k.settle()
		}
	}
	for name := range k.desired {
		k.remove(name)
	}
	k.settle()
	k.leftovers()
}

// slowRuntime makes each changing call take a moment before and after its effect, so that a kill
// can come before, between and after.
func slowRuntime(t testing.TB, n *harness.Node) {
	for _, method := range []string{
		"RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "CreateContainer", "StartContainer",
		"StopContainer", "RemoveContainer", "UpdateContainerResources",
	} {
		for _, after := range []bool{false, true} {
			err := n.Runtime.SetFault(crisim.Fault{
				Method: method, After: after,
				Delay: metav1.Duration{Duration: 3 * time.Millisecond},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// killer runs the random schedule.
type killer struct {
	*harness.Node
	t       *testing.T
	random  *rand.Rand
	monitor *monitor
	desired map[string]workload // by name
	counter int
}

// round changes the desired pods, before the agent starts and while it runs, and kills it.
func (k *killer) round() {
	for range k.random.IntN(2) {
		k.change()
	}
	if k.random.IntN(2) == 0 {
		k.StartOnly() // so that the kill comes while it starts
	} else {
		k.Start()
	}
	for range k.random.IntN(3) {
		k.pause()
		k.change()
	}
	k.pause()
	k.Kill()
	promised := assignedState(k.t, k.Node) // fails the test if the state cannot be read
	if text := overpromised(promised.Blocks()); text != "" {
		k.t.Errorf("invariant broken: in the state file, %s", text)
	}
}

// pause waits for a random time, which is part of the schedule.
func (k *killer) pause() {
	time.Sleep(time.Duration(k.random.Int64N(int64(150 * time.Millisecond))))
}

// settle gives the agent time and checks that everything is as desired. From then on no pod may end
// that the schedule does not touch.
func (k *killer) settle() {
	k.t.Helper()
	var want []workload
	for _, name := range k.names() {
		want = append(want, k.desired[name])
	}
	wide := slices.ContainsFunc(want, workload.wide)
	for i := range want {
		want[i].mayLackMemory = wide || want[i].hungry()
	}
	k.Start()
	k.Eventually(fmt.Sprintf("the node settles with %d pods", len(want)), func() error {
		return converged(k.t, k.Node, want)
	})
	pods, err := k.Pods()
	if err != nil {
		k.t.Fatal(err)
	}
	run := 0
	for _, w := range want {
		if pods[w.node()].Status.Phase == v1.PodRunning {
			run++
			k.monitor.leaveAlone(w.node(), true)
		}
	}
	if 2*run < len(want) {
		k.t.Errorf("%d of %d pods run, the others lack memory", run, len(want))
	}
	k.Kill()
}

func (k *killer) names() []string {
	var out []string
	for name := range k.desired {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// change adds, changes or removes one pod.
func (k *killer) change() {
	names := k.names()
	if len(names) < 4 || len(names) < 12 && k.random.IntN(2) == 0 {
		k.counter++
		k.desire(k.invent(fmt.Sprintf("p%d", k.counter)))
		return
	}
	name := names[k.random.IntN(len(names))]
	switch k.random.IntN(4) {
	case 0: // change it in place, or into another pod with the same name
		w := k.desired[name]
		w.generation++
		k.desire(w)
	case 1: // replace it by a pod with other needs
		w := k.invent(name)
		w.generation = k.desired[name].generation + 1
		k.desire(w)
	default:
		k.remove(name)
	}
}

// desire writes the pod if all desired pods fit the node together.
func (k *killer) desire(w workload) {
	cpus, gpus, nics := w.total()
	wide := w.wide()
	for name, other := range k.desired {
		if name != w.name {
			c, g, n := other.total()
			cpus, gpus, nics = cpus+c, gpus+g, nics+n
			if wide && other.wide() {
				return
			}
		}
	}
	if cpus > assignableCPUs || gpus > 8 || nics > 4 {
		return
	}
	k.monitor.leaveAlone(w.node(), false)
	k.desired[w.name] = w
	k.Pod(w.name, w.manifest())
}

func (k *killer) remove(name string) {
	k.monitor.leaveAlone(k.desired[name].node(), false)
	delete(k.desired, name)
	k.RemovePod(name)
}

// wideMemory is more than one node has. Only one pod at a time wants it, so that nodes are left for
// others.
const wideMemory = "70Gi"

func (w workload) wide() bool { return w.main.memory == wideMemory }

// hungry reports whether the pod may find no room for its memory or huge pages.
func (w workload) hungry() bool {
	for _, n := range w.held() {
		if n.pages != "" {
			return true
		}
	}
	return w.wide()
}

// invent makes up a pod.
func (k *killer) invent(name string) workload {
	one := func() need {
		n := need{cpus: "300m", gpus: k.random.IntN(3), nics: k.random.IntN(2)}
		if k.random.IntN(3) > 0 {
			n.cpus = strconv.Itoa(1 + k.random.IntN(12))
		}
		switch k.random.IntN(6) {
		case 0:
			n.memory = fmt.Sprintf("%dGi", 1+k.random.IntN(8))
		case 1:
			n.pages = fmt.Sprintf("%dMi", 2+2*k.random.IntN(256))
		}
		if k.random.IntN(3) == 0 {
			n.script = "term-after=20ms"
		}
		return n
	}
	w := workload{name: name, main: one()}
	if k.random.IntN(6) == 0 {
		w.main.memory = wideMemory
	}
	if k.random.IntN(3) == 0 {
		w.uid = fmt.Sprintf("00000000-0000-0000-0000-%012d", k.random.IntN(1_000_000_000))
	}
	if k.random.IntN(3) == 0 {
		init := one()
		init.script = fmt.Sprintf("exit=0 after=%dms", k.random.IntN(30))
		w.init = &init
	}
	if k.random.IntN(3) == 0 {
		sidecar := one()
		w.sidecar = &sidecar
	}
	return w
}

// total returns an upper bound for what the pod holds at any time: whole CPUs, GPUs, NICs.
func (w workload) total() (cpus, gpus, nics int) {
	for _, n := range w.held() {
		cpus += max(n.exclusive(), 1)
		gpus += n.gpus
		nics += n.nics
	}
	return cpus, gpus, nics
}

// leftovers checks that an empty node keeps nothing of the crashes.
func (k *killer) leftovers() {
	for _, c := range k.Runtime.State().Containers {
		k.t.Errorf("the runtime still has %s, %s", nameOf(c), c.State)
	}
	for _, pattern := range []string{"pods/*", ".*", "device-plugins/.*", "*.corrupt-*"} {
		found, err := filepath.Glob(filepath.Join(k.Root, pattern))
		if err != nil {
			k.t.Fatal(err)
		}
		if len(found) > 1 {
			k.t.Errorf("%d leftovers: %s", len(found), strings.Join(found[:2], " "))
		}
	}
}

// A pod that is desired again while it is being removed starts anew with other assignments: what it
// had before may belong to another pod by then.
func TestDesiredAgainWhileItStops(t *testing.T) {
	s := newSite(t)
	s.Start()
	w := workload{
		name: "again", uid: "00000000-0000-0000-0000-000000000001",
		main: need{cpus: "2", noRestart: true},
	}
	s.want(w)
	s.settles()
	s.must(s.Runtime.SetFault(crisim.Fault{
		Method: "StopPodSandbox", Delay: metav1.Duration{Duration: 300 * time.Millisecond},
	}))
	s.RemovePod(w.name)
	awaitContainer(s.Node, w.node(), "main", func(c crisim.Container) error {
		if c.Running() {
			return fmt.Errorf("it runs")
		}
		return nil
	})
	s.Pod(w.name, w.manifest())
	s.settles()
	s.nothingLeaked(everything(0))
}
