package cluster_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/test/cluster/faults"
	"github.com/numalet/numalet/test/cluster/rig"
	containerdrig "github.com/numalet/numalet/test/containerd/rig"
	"github.com/numalet/numalet/test/harness"
)

// Without NUMALET_FAULT_ROUNDS one accident of each kind happens, all on one node; with it that
// many of each kind, on a node for each kind. NUMALET_FAULT_SEED repeats a run.
const (
	roundsEnv = "NUMALET_FAULT_ROUNDS"
	seedEnv   = "NUMALET_FAULT_SEED"
)

// logPeriod is how often the test logs why the node is not quiet yet.
const logPeriod = 4 * time.Second

// faulty is a node with pods that change all the time, and with accidents.
type faulty struct {
	t       *testing.T
	c       rig.Cluster
	node    rig.Node
	cgroup  string             // the node's cgroupRoot; "": it has none
	daemon  *containerd.Daemon // nil: the runtime is simulated
	proxy   *faults.Proxy
	random  *rand.Rand
	wants   *workloads
	monitor *watcher

	runtime   runtimeapi.RuntimeServiceClient
	resources podresourcesv1.PodResourcesListerClient
	quiet     map[types.UID]map[string]string // the containers at the last quiet time, by UID
}

// TestFaults lets accidents happen at random moments while pods come and go. After each, what runs
// is what is wanted, everybody reports the same, nothing is left of removed pods, and untouched
// pods have kept running.
func TestFaults(t *testing.T) {
	rounds := int(harness.Number(t, roundsEnv, 0))
	if rounds == 0 {
		newFaulty(t, harness.New(t), nil, "").play(accidents)
	}
	for _, a := range accidents {
		if rounds > 0 {
			t.Run(a.name, func(t *testing.T) {
				newFaulty(t, harness.New(t), nil, "").play(slices.Repeat([]kindOfAccident{a}, rounds))
			})
		}
	}
}

// TestFaultsOfContainers lets accidents happen to the agent and to containerd.
func TestFaultsOfContainers(t *testing.T) {
	n, d, cgroup := containerdrig.Node(t)
	rounds := int(harness.Number(t, roundsEnv, 1))
	newFaulty(t, n, d, cgroup).play(slices.Repeat(
		[]kindOfAccident{{plan: (*faulty).anyOnNode}}, rounds))
}

// newFaulty makes a node behind a proxy, with no workloads yet.
func newFaulty(t *testing.T, n *harness.Node, d *containerd.Daemon, cgroup string) *faulty {
	t.Helper()
	seed := harness.Number(t, seedEnv, rand.Uint64())
	t.Logf("%s=%d", seedEnv, seed)
	sum := fnv.New64()
	sum.Write([]byte(t.Name())) // so that a single kind can be repeated as well
	random := rand.New(rand.NewPCG(seed, sum.Sum64()))
	c := rig.Start(t)
	s := &faulty{
		t: t, c: c, cgroup: cgroup, daemon: d, random: random,
		wants: &workloads{
			random: random, of: map[string]*desired{}, image: "registry.test/work:1", cpus: 24,
			scripts: []script{obeys, slowly, ignores, crashes}, well: []string{"true"},
		},
	}
	if d != nil {
		s.wants.image, s.wants.cpus = containerd.WorkImage, 0
		s.wants.scripts = []script{obeys, ignores}
		s.wants.well = []string{containerd.Program, "container", "work", "--exit=0"}
	} else {
		s.monitor = watch(n)
	}
	for name, value := range map[string]any{
		"crashLoopBackOff":         map[string]string{"maxContainerRestartPeriod": "1s"},
		"nodeLeaseDurationSeconds": 4, "nodeStatusUpdateFrequency": "4s",
		"runtimeRequestTimeout": "5s",
	} {
		n.Settings[name] = value
	}
	s.node = c.Join(n, "faulty")
	s.proxy = stand(t, c, s.node, random.Uint64())
	s.runtime = runtimeapi.NewRuntimeServiceClient(dial(t, n.Endpoint))
	s.resources = podresourcesv1.NewPodResourcesListerClient(
		dial(t, "unix://"+filepath.Join(n.Root, "pod-resources", "kubelet.sock")))
	n.Plugin(gpu, fmt.Sprintf("--devices=%d", haveGPUs), "--nodes=0")
	n.Start()
	return s
}

// stand puts a proxy between a node that was not started and the API server.
func stand(t *testing.T, c rig.Cluster, n rig.Node, seed uint64) *faults.Proxy {
	t.Helper()
	certificate, key := filepath.Join(n.Dir, "p.crt"), filepath.Join(n.Dir, "p.key")
	if err := c.NodeCertificate(certificate, key, "proxy"); err != nil {
		t.Fatal(err)
	}
	proxy, err := faults.Start(faults.Config{
		Kubeconfig: n.Kubeconfig, Certificate: certificate, Key: key,
		Random: rand.New(rand.NewPCG(seed, 0)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Stop)
	through, err := proxy.Redirect(n.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for i, arg := range n.Args {
		if strings.HasPrefix(arg, "--kubeconfig=") {
			n.Args[i] = "--kubeconfig=" + through
		}
	}
	return proxy
}

// play lets accidents of these kinds happen, one after the other, and removes all workloads in the
// end.
func (s *faulty) play(kinds []kindOfAccident) {
	for range 5 {
		s.wants.change()
	}
	s.settle("it begins")
	for round, k := range kinds {
		if k.direct && !s.wants.direct {
			s.wants.drop(func(o *desired) bool { return o.kind.indirect() })
			s.settle("what others keep is removed")
			s.t.Cleanup(s.restartOthers)
		}
		s.wants.direct = k.direct
		a := k.plan(s)
		what := fmt.Sprintf("round %d, %s", round, a.what)
		s.t.Log(what)
		began := time.Now()
		s.throw(a)
		s.settle(what)
		s.t.Logf("all was quiet after %v", time.Since(began).Round(time.Millisecond))
	}
	s.wants.drop(func(*desired) bool { return true })
	s.settle("all is removed")
}

// throw lets an accident happen, and changes workloads before, during and after it.
func (s *faulty) throw(a accident) {
	changes := make([]int, 3)
	for i := range changes {
		changes[i] = s.random.IntN(2)
	}
	pauses := []time.Duration{s.moment(), s.moment()}
	change := func(count int) {
		for range count {
			o := s.wants.change()
			s.t.Logf("%s: generation %d, %d replicas, gone %v, by force %v", o.name, o.generation,
				o.replicas, o.gone, o.force)
		}
		_ = s.apply() // what fails now is applied when the node settles
	}
	change(changes[0])
	time.Sleep(pauses[0])
	var under sync.WaitGroup
	errs := make(chan error, len(a.parts))
	for _, part := range a.parts {
		under.Go(func() { errs <- part() })
	}
	if a.reachable {
		time.Sleep(pauses[1])
		change(changes[1])
	}
	under.Wait()
	for range a.parts {
		if err := <-errs; err != nil {
			s.t.Fatalf("%s: %v", a.what, err)
		}
	}
	change(changes[2])
}

// moment draws a pause.
func (s *faulty) moment() time.Duration {
	return time.Duration(s.random.Int64N(int64(300 * time.Millisecond)))
}

// settle waits until everything is as wanted, and stays so for a while. Untouched containers must
// not have been restarted since the last quiet time.
func (s *faulty) settle(when string) {
	s.t.Helper()
	var now *observed
	since := time.Now()
	tell := time.Now().Add(logPeriod)
	s.node.Eventually("all is quiet after "+when, func() (err error) {
		if now, err = s.isQuiet(since); err == nil {
			return nil
		}
		if time.Now().After(tell) {
			tell = time.Now().Add(logPeriod)
			s.t.Logf("not yet: %v", err)
		}
		time.Sleep(100 * time.Millisecond)
		return err
	})
	if err := s.untouched(now); err != nil {
		s.t.Errorf("after %s: %v", when, err)
	}
	s.monitor.check(s.t)
	if s.t.Failed() {
		s.t.FailNow()
	}
	s.quiet = map[types.UID]map[string]string{}
	for _, p := range now.api {
		of := map[string]string{}
		for _, c := range p.Status.ContainerStatuses {
			of[c.Name] = identity(c)
		}
		s.quiet[p.UID] = of
	}
	for _, o := range s.wants.of {
		o.touched = false
	}
}

// isQuiet returns an error unless everything is as wanted, nobody writes to pods, and the node has
// reported since.
func (s *faulty) isQuiet(since time.Time) (*observed, error) {
	s.revive()
	if err := s.apply(); err != nil {
		return nil, err
	}
	before, err := s.look()
	if err == nil {
		err = before.check(s.wants)
	}
	if err != nil {
		return nil, err
	}
	time.Sleep(100 * time.Millisecond)
	after, err := s.look()
	if err == nil {
		err = after.check(s.wants)
	}
	if err == nil {
		err = s.alive(since)
	}
	if err != nil {
		return nil, err
	}
	for name, p := range after.api {
		if was := before.api[name]; was.ResourceVersion != p.ResourceVersion {
			return nil, fmt.Errorf("pod %s became version %s, before %s", name, p.ResourceVersion,
				was.ResourceVersion)
		}
	}
	return after, nil
}

// revive starts the agent again if it has ended, as systemd would. Without a runtime it may end at
// its start; any other reason fails the test.
func (s *faulty) revive() {
	s.t.Helper()
	exited, how := s.node.Exited()
	if !exited {
		return
	}
	if end := s.node.LogTail(3); !strings.Contains(end, "numalet: connect runtime") {
		s.t.Fatalf("the agent has ended: %v\n%s", how, s.node.LogTail(40))
	}
	s.node.StartOnly()
}

// untouched returns what happened to pods that should not have noticed anything.
func (s *faulty) untouched(now *observed) error {
	for _, p := range now.api {
		if s.wants.of[p.Labels["want"]].touched {
			continue
		}
		for _, c := range p.Status.ContainerStatuses {
			if was := s.quiet[p.UID][c.Name]; was != identity(c) {
				return fmt.Errorf("container %s of pod %s was %q, and is %q", c.Name, p.Name, was,
					identity(c))
			}
		}
	}
	return nil
}

// watcher checks at each change of the simulated runtime that no two containers have the same CPU
// or device.
type watcher struct {
	mu     sync.Mutex
	live   map[string]crisim.Container
	broken []string
}

func watch(n *harness.Node) *watcher {
	w := &watcher{live: map[string]crisim.Container{}}
	n.Runtime.Watch(w.changed)
	return w
}

func (w *watcher) changed(c crisim.Container) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.live, c.Subject.ID)
	if !c.Running() {
		return
	}
	for _, other := range w.live {
		w.broken = append(w.broken, harness.Clashes(c, other, gpu)...)
	}
	w.live[c.Subject.ID] = c
}

// check fails the test for what was found.
func (w *watcher) check(t *testing.T) {
	t.Helper()
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, what := range w.broken {
		t.Errorf("invariant broken: %s", what)
	}
	w.broken = nil
}
