package guest_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
)

// runtimeDir has the runtime's files.
const runtimeDir = home + "/c"

// What pods ask for. torn wants the disks of two nodes, wide and wider the CPUs and the memory
// of two; wider in such a way that only nodes 1 to 3 have enough.
func near() ask  { return ask{cpu: "2", memory: "64Mi", huge: 16, nics: 1, disks: 1} }
func pair() ask  { return ask{cpu: "4", memory: "64Mi", nics: 2} }
func torn() ask  { return ask{cpu: "2", memory: "64Mi", disks: 2} }
func wide() ask  { return ask{cpu: "6", memory: "800Mi"} }
func wider() ask { return ask{cpu: "8", memory: "800Mi"} }

// TestFirstNode runs pods on the machine, under each policy and through changes and accidents, and
// leaves some running for the next boot.
func TestFirstNode(t *testing.T) {
	g := firstGuest(t)
	policy := func(name string, options map[string]string) func() {
		return func() {
			g.Settings["topologyManagerPolicy"] = name
			g.Settings["topologyManagerPolicyOptions"] = options
			g.Kill()
			g.Start()
		}
	}
	closest := map[string]string{"prefer-closest-numa-nodes": "true"}
	nothing := func() {}
	for _, step := range []struct {
		name   string
		before func()
		test   func(guest)
	}{
		{"restricted", policy("restricted", nil), testRestricted},
		{"best-effort", policy("best-effort", nil), testBestEffort},
		{"closest nodes", policy("best-effort", closest), testClosest},
		{"single-numa-node", policy("single-numa-node", nil), testSingleNode},
		{"CPU offline", nothing, testOffline},
		{"repair", nothing, testRepair},
		{"agent killed", nothing, func(as guest) { testKilled(as, g) }},
		{"resized", nothing, func(as guest) { testResized(as, g) }},
	} {
		step.before() // with the original: it holds the agent's process
		if !t.Run(step.name, func(t *testing.T) { step.test(g.as(t)) }) {
			return // the others would wait for what does not come
		}
	}
	g.remember("near", "pair", "shared")
}

// firstGuest is a node on a disk that no node has been on.
func firstGuest(t *testing.T) guest {
	t.Helper()
	d := newRuntime(t)
	describeDisks(t, d.CDIDir())
	return newGuest(t, d.Endpoint())
}

// newRuntime starts a containerd with the images of the disk. It ends with the guest.
func newRuntime(t *testing.T) *containerd.Daemon {
	t.Helper()
	if err := os.MkdirAll(runtimeDir, 0o755); err != nil {
		t.Fatal(err)
	}
	config := containerd.Config{Binaries: "/bin", Dir: runtimeDir, Pause: containerd.PauseImage}
	d, err := containerd.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("containerd's log:\n%s", logTail(d.LogFile()))
		}
	})
	if err := d.Import(t.Context(), dir+"/images.tar"); err != nil {
		t.Fatal(err)
	}
	return d
}

// testKilled: pods outlive the agent, and are adopted as they are. g is the original.
func testKilled(as, g guest) {
	before, calls := as.facts("near", "pair", "shared"), as.calls()
	g.Kill()
	g.Start()
	as.unchanged(before, calls)
}

// testRestricted: what could be on one node is, or does not run; what needs more has as few as it
// can.
func testRestricted(g guest) {
	g.rejected("torn", torn())
	disks := ask{disks: 2} // memory of its own would be wanted on one node
	g.run(map[string]ask{"wide": wide(), "disks": disks})
	l := g.look("disks")
	row(g.t, "disks: CPUs %s, %v: on nodes %s", l.cpus(g.t), l.devices(), l.promise.NUMANodes)
	l.checkDisks(g.t)
	if l.promise.NUMANodes != "1,3" || len(l.devices()) != 2 {
		g.t.Errorf("the disks %v are on nodes 1 and 3; promised: %+v", l.devices(), l.promise)
	}
	g.onNodes(g.exclusive("wide", wide()), 2)
	g.remove("wide", "disks")
}

// testBestEffort: what cannot be together runs all the same, and of equal nodes the first are
// taken.
func testBestEffort(g guest) {
	g.run(map[string]ask{"torn": torn()})
	g.exclusive("torn", torn())
	g.remove("torn")
	g.run(map[string]ask{"wider": wider()})
	if l := g.exclusive("wider", wider()); l.nodes(g.t).String() != "1-2" {
		g.t.Errorf("it is on nodes %s, want the first that have enough, 1 and 2", l.nodes(g.t))
	}
	g.remove("wider")
}

// testClosest: of nodes that have enough those are taken that are near each other.
func testClosest(g guest) {
	g.run(map[string]ask{"wider": wider()})
	if l := g.exclusive("wider", wider()); l.nodes(g.t).String() != "2-3" {
		g.t.Errorf("it is on nodes %s, want 2 and 3, which are of one socket", l.nodes(g.t))
	}
	g.remove("wider")
}

// testSingleNode: everything of a container is on one node, or it does not run.
func testSingleNode(g guest) {
	g.run(map[string]ask{"near": near(), "pair": pair(), "shared": {}})
	g.onNodes(g.exclusive("near", near()), 1)
	g.onNodes(g.exclusive("pair", pair()), 1)
	g.shared("shared", g.pool())
	g.rejected("torn", torn())
	g.rejected("wide", wide())
}

// onNodes: CPUs, devices and memory are on the same nodes, so many.
func (g guest) onNodes(l lives, n int) {
	g.t.Helper()
	if nodes := l.nodes(g.t); nodes.Size() != n || !nodes.Equals(l.mems(g.t)) {
		g.t.Errorf("%s has CPUs and devices on nodes %s, memory on nodes %s; want the same %d",
			l.name, nodes, l.mems(g.t), n)
	}
}

// testOffline: the shared pool follows CPUs that come and go, and pods that lose some of their own
// are named.
func testOffline(g guest) {
	all := g.pool()
	last := all.List()[all.Size()-1]
	setOnline(g.t, last, false)
	g.shared("shared", all.Difference(cpuset.New(last)))
	setOnline(g.t, last, true)
	g.shared("shared", all)

	l := g.look("near")
	own := l.cpus(g.t)
	lost := own.List()[1]
	setOnline(g.t, lost, false)
	g.awaitCPUs(l, own.Difference(cpuset.New(lost)))
	g.awaitEvent("CPUOffline", "near-node")
	setOnline(g.t, lost, true)
	g.awaitCPUs(l, own)
	g.awaitEvent("CPUOnline", "near-node")
	g.shared("shared", all)
	row(g.t, "near: CPUs %s, without %d, then %s again", own, lost, l.cpus(g.t))
}

func setOnline(t *testing.T, cpu int, online bool) {
	t.Helper()
	text := "0"
	if online {
		text = "1"
	}
	if err := os.WriteFile(cpuFile(cpu, "online"), []byte(text), 0); err != nil {
		t.Fatal(err)
	}
}

// testRepair: what somebody else has changed in a container's cgroup is put right.
func testRepair(g guest) {
	l := g.look("near")
	own := l.cpus(g.t)
	if err := os.WriteFile(l.cgroup+"/cpuset.cpus", []byte("0-15"), 0); err != nil {
		g.t.Fatal(err)
	}
	if now := l.cpus(g.t); now.Equals(own) {
		g.t.Fatalf("the cgroup has not changed: %s", now)
	}
	g.awaitCPUs(l, own)
	row(g.t, "near: CPUs %s, was 0-15 for a while", l.cpus(g.t))

	nodes, repaired := l.mems(g.t), g.repaired()
	if err := os.WriteFile(l.cgroup+"/cpuset.mems", []byte("0-3"), 0); err != nil {
		g.t.Fatal(err)
	}
	if now := l.mems(g.t); now.Equals(nodes) {
		g.t.Fatalf("the cgroup has not changed: memory of nodes %s", now)
	}
	g.Eventually("near uses the memory of nodes "+nodes.String(), func() error {
		if got, file := l.mems(g.t), saidList(g.t, l.cgroup, "cpuset.mems"); !got.Equals(nodes) ||
			!file.Equals(nodes) {
			return fmt.Errorf("it may use that of %s, its cgroup has %s", got, file)
		}
		return nil
	})
	g.Eventually("the repair is counted", func() error {
		if now := g.repaired(); now != repaired+1 {
			return fmt.Errorf("%d repairs of memory nodes, there were %d", now, repaired)
		}
		return nil
	})
	row(g.t, "near: memory of nodes %s, was 0-3 for a while", nodes)

	// Nobody has set where the memory of the shared container may be.
	shared := g.look("shared")
	if text := said(g.t, shared.cgroup, "cpuset.mems"); text != "" {
		g.t.Errorf("the shared container has cpuset.mems %q", text)
	}
}

// repaired returns how often the agent has corrected memory nodes.
func (g guest) repaired() (n int) {
	g.t.Helper()
	const name = "numalet_memory_nodes_repairs_total "
	_, after, found := strings.Cut(g.Get("/metrics"), "\n"+name)
	if _, err := fmt.Sscan(after, &n); !found || err != nil {
		g.t.Fatalf("/metrics has no %s: %v", name, err)
	}
	return n
}

// awaitCPUs waits until a container may use exactly these.
func (g guest) awaitCPUs(l lives, want cpuset.CPUSet) {
	g.t.Helper()
	g.Eventually(fmt.Sprintf("%s uses CPUs %s", l.name, want), func() error {
		if got := l.cpus(g.t); !got.Equals(want) {
			return fmt.Errorf("it may use %s", got)
		}
		return nil
	})
}

// awaitEvent waits until the agent has an event about a pod.
func (g guest) awaitEvent(reason, pod string) {
	g.t.Helper()
	g.Eventually("there is an event "+reason+" of "+pod, func() error {
		for line := range strings.Lines(said(g.t, g.Dir, "log")) {
			if strings.Contains(line, `"Event" pod="default/`+pod+`"`) &&
				strings.Contains(line, fmt.Sprintf("reason=%q", reason)) {
				return nil
			}
		}
		return fmt.Errorf("there is none")
	})
}

func logTail(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}
