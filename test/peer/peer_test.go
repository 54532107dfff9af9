// Package peer measures numalet and the stock kubelet side by side: the same load on both, in turn,
// with one control plane and a real containerd for each. `make peer` runs it and writes the figures
// to bench/peer.json.
//
// The figures depend on the machine and on what else it does: nothing else should, and only a ratio
// within one run means anything. Nothing is asserted but that each load came to its end.
package peer

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/numalet/numalet/cmd/numalet-lab/csidriver"
	"github.com/numalet/numalet/test/cluster/rig"
	containerdrig "github.com/numalet/numalet/test/containerd/rig"
)

func TestMain(m *testing.M) {
	csidriver.Main() // this program is also the process of CSI drivers
	rig.Audited()
	rig.Main(m)
}

// agents are measured in this order.
var agents = []string{"numalet", "kubelet"}

// settings say how much is measured.
type settings struct {
	rounds  int
	singles int // pods that start one at a time, as many that end by themselves
	burst   int // pods that start at once
	claims  int // pods with a resource claim each that start at once
	idle    time.Duration
}

// TestPeer measures NUMALET_PEER rounds, each agent once in each; without it nothing. NUMALET_PEER_PARTS
// is a regular expression for the parts to measure: singles, exits, burst, probes, answers, claims,
// volumes, guarded, resizes.
func TestPeer(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("NUMALET_PEER"))
	if err != nil || rounds < 1 {
		t.Skip("left out: make peer runs it, on a quiet machine")
	}
	s := settings{rounds: rounds, singles: 15, burst: 60, claims: 110, idle: time.Minute}
	if testing.Short() {
		s = settings{rounds: rounds, singles: 3, burst: 10, claims: 10, idle: 5 * time.Second}
	}
	all := figures{}
	for round := range s.rounds {
		for _, name := range agents {
			began := time.Now()
			ok := t.Run(fmt.Sprintf("%d/%s", round+1, name), func(t *testing.T) {
				measure(t, s, name, all.of(name))
			})
			if !ok {
				return
			}
			fmt.Printf("round %d of %d, %s: measured in %v\n", round+1, s.rounds, name,
				time.Since(began).Round(time.Second))
		}
	}
	fmt.Print(all.table())
	if err := all.write(os.Getenv("NUMALET_PEER_OUT")); err != nil {
		t.Fatal(err)
	}
}

// measure puts the load on one agent and adds what is measured.
func measure(t *testing.T, s settings, name string, into column) {
	c := rig.Start(t)
	agent, daemon, group := containerdrig.Node(t)
	if name == "kubelet" {
		rig.StockKubelet(t, agent)
	}
	agent.Args = append(agent.Args, "--v=2")
	n := &node{
		t: t, cluster: c, column: into, settings: s,
		Node: c.Join(agent, fmt.Sprintf("%s-%d", name, time.Now().UnixNano()%1e6)),
	}
	n.Settings["maxPods"] = 2 * s.burst
	n.Start()
	n.cluster.AwaitReady(n.Name)
	n.watch()
	n.followExits(daemon.Endpoint())
	chosen := regexp.MustCompile(os.Getenv("NUMALET_PEER_PARTS"))
	for _, part := range []struct {
		name string
		do   func()
	}{
		{"singles", n.oneAtATime}, {"exits", n.exits}, {"burst", n.atOnce}, {"probes", n.probed},
		{"answers", n.answered}, {"claims", func() { n.claims(daemon) }},
		{"volumes", n.volumes}, {"guarded", n.guarded}, {"resizes", func() { n.resizes(group) }},
	} {
		if chosen.MatchString(part.name) {
			part.do()
		}
	}
}
