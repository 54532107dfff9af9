package cluster_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/test/cluster/faults"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// Without NUMALET_ATTACK_ROUNDS each attack runs once; with it that many times, each time in
// another order, on a control plane of its own. NUMALET_ATTACK_SEED repeats a run.
const (
	attackRoundsEnv = "NUMALET_ATTACK_ROUNDS"
	attackSeedEnv   = "NUMALET_ATTACK_SEED"
)

const (
	// planeMemory bounds the memory of each server of the control plane in a run of many rounds:
	// the users' objects must not take all of the machine.
	planeMemory = 2 << 30
	// attackedMiB bounds the agent's memory at any time.
	attackedMiB = 400
)

// attacked is a node with a victim's pod, and with attackers who have some rights.
type attacked struct {
	t      *testing.T
	c      rig.Cluster
	n      rig.Node
	proxy  *faults.Proxy
	random *rand.Rand
	good   *v1.Pod
	// weak is the token of a client that may read the node's health, reader of one that may read
	// its pods.
	weak, reader string
	// gauge is the token of a client that may read the node's metrics.
	gauge string
}

// attacks come from users of the API server, clients of the node, and wrong answers to the node.
var attacks = []struct {
	name string
	make func(*attacked)
}{
	{"downward API", (*attacked).muchDownward},
	{"variables", (*attacked).muchEnvironment},
	{"nested paths", (*attacked).nestedPaths},
	{"many keys", (*attacked).manyKeys},
	{"log links", (*attacked).logLinks},
	{"lease", (*attacked).foreignLease},
	{"tokens", (*attacked).lateTokens},
	{"refused writes", (*attacked).refusedWrites},
	{"connections", (*attacked).manyConnections},
	{"deaf clients", (*attacked).deafClients},
	{"resets", (*attacked).rapidResets},
	{"no list", (*attacked).noList},
}

// TestAttacks: whatever users create, clients of the node do, or somebody answers in the API
// server's place, another user's pod keeps running untouched, a new one starts, and the agent's
// memory stays bounded.
func TestAttacks(t *testing.T) {
	rounds := int(harness.Number(t, attackRoundsEnv, 0))
	seed := harness.Number(t, attackSeedEnv, rand.Uint64())
	t.Logf("%s=%d", attackSeedEnv, seed)
	random := rand.New(rand.NewPCG(seed, 0))
	if rounds == 0 {
		a := newAttacked(t, rig.Start(t), random)
		for i := range attacks {
			a.once(i)
		}
		return
	}
	a := newAttacked(t, rig.Limited(t, planeMemory), random)
	for round := range rounds {
		t.Logf("round %d", round)
		for _, i := range random.Perm(len(attacks)) {
			a.once(i)
		}
	}
}

func newAttacked(t *testing.T, c rig.Cluster, random *rand.Rand) *attacked {
	agent := harness.New(t)
	agent.Settings["nodeLeaseDurationSeconds"] = 4
	a := &attacked{t: t, c: c, n: c.Join(agent, "attacked"), random: random}
	a.proxy = stand(t, c, a.n, random.Uint64())
	a.n.Start()
	c.AwaitReady(a.n.Name)
	a.weak = account(t, c, "weak", []string{"get"}, []string{"healthz"})
	a.reader = account(t, c, "reader", []string{"get"}, []string{"pods"})
	a.gauge = account(t, c, "gauge", []string{"get"}, []string{"metrics"})
	c.Apply(bound(a.n.Name, "good", ""))
	a.good = await(t, c, c.Namespace, "good", runs)
	return a
}

// once runs an attack and checks the node afterwards.
func (a *attacked) once(i int) {
	a.t.Helper()
	ok := a.t.Run(attacks[i].name, func(t *testing.T) {
		whole := a.t
		a.t = t
		defer func() { a.t = whole }()
		attacks[i].make(a)
		a.proxy.Instead(nil)
		a.check()
	})
	if !ok {
		a.t.FailNow()
	}
}

// check: a new pod starts, the victim's is untouched, and the agent uses little memory.
func (a *attacked) check() {
	a.t.Helper()
	a.c.Apply(bound(a.n.Name, "later", ""))
	await(a.t, a.c, a.c.Namespace, "later", runs)
	a.remove("later")
	now, err := get(a.t, a.c, a.c.Namespace, "good")
	if err != nil || !runs(now) || lifeOf(now) != lifeOf(a.good) {
		a.t.Errorf("the good pod was %+v and is %+v, %v", a.good.Status, now, err)
	}
	used := harness.MemoryMiB(a.t, a.n.PID(), "VmHWM")
	a.t.Logf("the agent has had %.0f MiB of memory", used)
	if used > attackedMiB {
		a.t.Errorf("the agent took %.0f MiB of memory, want at most %d", used, attackedMiB)
	}
}

// podOn returns an ordinary pod for the node.
func podOn(node, name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{NodeName: node,
		AutomountServiceAccountToken:  ptr.To(false),
		TerminationGracePeriodSeconds: ptr.To[int64](1),
		Tolerations:                   []v1.Toleration{{Operator: v1.TolerationOpExists}},
		Containers:                    []v1.Container{{Name: "main", Image: "registry.test/work:1"}},
	}}
}

// pod makes a pod on the node; without change it is an ordinary one.
func (a *attacked) pod(name string, change func(*v1.Pod)) {
	a.t.Helper()
	p := podOn(a.n.Name, name)
	if change != nil {
		change(p)
	}
	_, err := a.c.Client.CoreV1().Pods(a.c.Namespace).Create(a.t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		a.t.Fatalf("%s: %v", name, err)
	}
}

// remove deletes a pod and waits until it is gone.
func (a *attacked) remove(name string) {
	a.t.Helper()
	a.c.MustRun("delete", "pod", name, "--timeout=2m")
}

// configMap makes a config map, which is deleted after the attack.
func (a *attacked) configMap(name string, data map[string]string) {
	a.t.Helper()
	maps := a.c.Client.CoreV1().ConfigMaps(a.c.Namespace)
	if _, err := maps.Create(a.t.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name},
		Data: data}, metav1.CreateOptions{}); err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() {
		if err := maps.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			a.t.Error(err)
		}
	})
}

// url returns the node's own address.
func (a *attacked) url() string { return fmt.Sprint("https://", a.address()) }

func (a *attacked) address() string { return fmt.Sprint("127.0.0.1:", a.n.Settings["port"]) }
