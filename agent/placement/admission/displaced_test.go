package admission

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
)

// pinning is a machine whose only node has so many GiB, of which pods get all but one.
func pinning(t *testing.T, size uint64) machine.Hardware {
	t.Helper()
	m, err := topology.NewMachine(topology.Spec{
		Nodes: []topology.Node{{ID: 0, MemoryBytes: size << 30}},
		CPUs:  []topology.CPU{{ID: 0, Core: 0}, {ID: 1, Core: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	static, err := memory.New(m, memory.Amounts{0: {v1.ResourceMemory: 1 << 30}})
	if err != nil {
		t.Fatal(err)
	}
	reserved := v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}
	return machine.Hardware{Machine: m, Memory: static,
		Allocatable: nodestatus.Allocatable(m, nodestatus.Reservation{MaxPods: 100, Reserved: reserved})}
}

// The machine has become too small for three pods that wait, and the API server is asked about the
// last. Until it answers, the first has no place beside all claims, and keeps its own. The second
// keeps its claim too: if it lost it and got it again, the first would be decided on anew, without
// end.
func TestAClaimBesideTheOneThatStaysIsKept(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		c := &resourceClaims{lacks: map[types.UID]claim.Lack{"a": noClaim, "c": noClaim},
			begun: map[types.UID]bool{}}
		p, now, decisions := &plugins{}, pinning(t, 16), 0
		d := open(t, dir, p, func(cfg *Config) {
			cfg.Claims, cfg.Wait = c, time.Minute
			cfg.Hardware = func() machine.Hardware { return now }
			cfg.Handlers = []decide.Handler{func(decide.Attempt) *decide.Refusal {
				if decisions++; decisions > 1000 {
					panic("the queue decides without end")
				}
				return nil
			}}
		})
		defer d.stop()
		d.queue.Submit(claiming("a", "cpu=100m memory=4Gi"), false)
		d.queue.Submit(pod("b", "cpu=100m memory=4Gi example.com/gpu=1"), false)
		d.now("a Wait " + claim.ReasonWaitClaim + ", b " + forPlugin)
		c.hangs = true
		d.queue.Submit(claiming("c", "cpu=100m memory=4Gi"), false)
		synctest.Wait()
		now = pinning(t, 10)
		d.queue.Poke()
		d.expect()
		c.set(func() { c.lacks["a"] = noDriver })
		d.queue.Poke() // so that it is decided on while the second waits
		d.now("a Wait " + claim.ReasonWaitDriver)
		if of := d.queue.admitter.line; of.Find("c").State != record.Inquiring ||
			len(of.Find("b").Has.Pod.Containers["main"].Memory()) != 1 {
			t.Errorf("c is %v, b has %v", of.Find("c").State, of.Find("b").Has.Pod)
		}
		if _, err := d.queue.Snapshot(t.Context()); err != nil { // the queue goes on after what was read
			t.Fatal(err)
		}
		time.Sleep(record.LookTimeout)
		synctest.Wait()
		if said := d.hear(); len(said) != 1 || !strings.HasPrefix(said[0], "c Reject: ") {
			t.Errorf("said %q, want that c is rejected", said)
		}
		c.set(func() { c.lacks = map[types.UID]claim.Lack{} })
		p.offer("example.com/gpu", 1)
		d.queue.Poke()
		d.now("a Admit, b Admit")
	})
}
