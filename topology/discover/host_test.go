package discover

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/jaypipes/ghw"
	"pgregory.net/rapid"

	"github.com/numalet/numalet/topology"
)

func TestReadsRenderedFixtures(t *testing.T) {
	for _, name := range FixtureNames() {
		t.Run(name, func(t *testing.T) {
			want := fixtureSpec(t, name)
			got, err := tree{attributes{rendered(want)}}.spec()
			if err != nil {
				t.Fatal(err)
			}
			for i := range want.PCI {
				want.PCI[i].Name = "" // comes from a database, see below
			}
			if diff := diffSpecs(asSysfsShows(want), got); diff != "" {
				t.Errorf("read back (-want +got):\n%s", diff)
			}
		})
	}
}

// On a real file system, and with ghw's answers where it has any.
func TestHostReadsRenderedTree(t *testing.T) {
	ctx := ghw.WithLogger(slog.New(slog.DiscardHandler))(context.Background())
	for _, name := range []string{"laptop", "cpuless-memory", "sparse-offline"} {
		t.Run(name, func(t *testing.T) {
			want := fixtureSpec(t, name)
			root := writeTree(t, rendered(want))
			got, err := Host(root)
			if err != nil {
				t.Fatal(err)
			}
			if diff := diffSpecs(asSysfsShows(want), got.Spec()); diff != "" {
				t.Errorf("read back (-want +got):\n%s", diff)
			}
			theirs, err := ghw.Topology(ghw.WithChroot(root)(ctx))
			if err != nil {
				t.Fatal(err)
			}
			if len(theirs.Nodes) != len(got.Nodes()) {
				t.Fatalf("ghw has %d nodes, we have %d", len(theirs.Nodes), len(got.Nodes()))
			}
			for _, their := range theirs.Nodes {
				compareNode(t, got, their)
			}
		})
	}
}

func TestRefresh(t *testing.T) {
	spec := fixtureSpec(t, "laptop")
	root := writeTree(t, rendered(spec))
	first, err := Host(root)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Refresh(root, first); again != first || err != nil {
		t.Fatalf("the same machine is %p, was %p: %v", again, first, err)
	}
	pool := root + "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"
	if err := os.WriteFile(pool, []byte("7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	after, err := Refresh(root, first)
	if err != nil {
		t.Fatal(err)
	}
	got, want := after.Spec(), first.Spec()
	for i := range want.Nodes[0].HugePages {
		if pool := &want.Nodes[0].HugePages[i]; pool.PageBytes == 2<<20 {
			pool.Count = 7
		}
	}
	if diff := diffSpecs(want, got); diff != "" || after == first {
		t.Errorf("read again (-want +got):\n%s", diff)
	}
	if err := os.RemoveAll(root + "/sys"); err != nil {
		t.Fatal(err)
	}
	if got, err := Refresh(root, first); err == nil {
		t.Errorf("without sysfs the machine is %s", got.Name())
	}
}

func fixtureSpec(t testing.TB, name string) topology.Spec {
	t.Helper()
	m, err := Fixture(name)
	if err != nil {
		t.Fatal(err)
	}
	return m.Spec()
}

func TestReadsAnyRenderedMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := anyMachine(t)
		got, err := tree{attributes{rendered(spec)}}.spec()
		if err != nil {
			t.Fatal(err)
		}
		if diff := diffSpecs(asSysfsShows(spec), got); diff != "" {
			t.Errorf("read back (-want +got):\n%s", diff)
		}
	})
}

func compareNode(t *testing.T, m *topology.Machine, their *ghw.TopologyNode) {
	t.Helper()
	id := topology.NodeID(their.ID)
	for i, node := range m.Nodes() {
		if want := their.Distances[i]; m.Distance(id, node.ID) != want {
			t.Errorf("distance %d to %d: %d, ghw says %d",
				id, node.ID, m.Distance(id, node.ID), want)
		}
		if node.ID != id {
			continue
		}
		if uint64(their.Memory.TotalUsableBytes) != node.MemoryBytes {
			t.Errorf("node %d: %d bytes, ghw says %d", id, node.MemoryBytes,
				their.Memory.TotalUsableBytes)
		}
		for _, pool := range node.HugePages {
			if a := their.Memory.HugePageAmountsBySize[pool.PageBytes]; a == nil ||
				a.Total != int64(pool.Count) {
				t.Errorf("node %d: pool %+v, ghw says %+v", id, pool, a)
			}
		}
	}
	cpus := 0
	for _, core := range their.Cores {
		cpus += len(core.LogicalProcessors)
		for _, cpu := range core.LogicalProcessors {
			if !m.CPUsOfNode(id).Contains(cpu) {
				t.Errorf("node %d lacks cpu %d, which ghw has", id, cpu)
			}
		}
	}
	if cpus != m.CPUsOfNode(id).Size() {
		t.Errorf("node %d has %d CPUs, ghw says %d", id, m.CPUsOfNode(id).Size(), cpus)
	}
}

func TestThisHost(t *testing.T) {
	if _, err := os.Stat("/" + cpuDir); err != nil {
		t.Skip("no sysfs here")
	}
	m, err := Host("")
	if err != nil {
		t.Fatal(err)
	}
	if m.MemoryBytes() == 0 || m.Online().IsEmpty() {
		t.Errorf("memory %d, online %s", m.MemoryBytes(), m.Online())
	}
}

// twoCPUs is the smallest sysfs, with one core and one L3.
func twoCPUs() fstest.MapFS {
	files := rendered(topology.Spec{
		Name:  "two",
		Nodes: []topology.Node{{ID: 0, MemoryBytes: 1 << 30}},
		CPUs:  []topology.CPU{{ID: 0}, {ID: 1}},
	})
	return files
}

func TestLessThanSysfsUsuallyHas(t *testing.T) {
	type machine = topology.Spec
	cpu := func(m machine, id int) topology.CPU { return m.CPUs[id] }
	tests := []struct {
		name   string
		change func(files fstest.MapFS)
		check  func(m machine) bool
	}{
		{"no NUMA", func(f fstest.MapFS) { removeBelow(f, nodeDir) }, func(m machine) bool {
			return len(m.Nodes) == 1 && m.Nodes[0].MemoryBytes == 1<<30 && cpu(m, 1).Node == 0
		}},
		{"no topology", func(f fstest.MapFS) { removeBelow(f, cpuDir+"/cpu1/topology") },
			func(m machine) bool {
				return cpu(m, 1).Core == 1 && cpu(m, 1).Socket == 0
			}},
		{"package unknown",
			func(f fstest.MapFS) { set(f, cpuDir+"/cpu1/topology/physical_package_id", "-1") },
			func(m machine) bool { return cpu(m, 1).Socket == 0 }},
		{"no L3: the highest level", func(f fstest.MapFS) {
			removeBelow(f, cpuDir+"/cpu0/cache/index3")
			removeBelow(f, cpuDir+"/cpu1/cache/index3")
			set(f, cpuDir+"/cpu0/cache/index2/shared_cpu_list", "0")
			set(f, cpuDir+"/cpu1/cache/index2/shared_cpu_list", "1")
		}, func(m machine) bool { return cpu(m, 0).L3 == 0 && cpu(m, 1).L3 == 1 }},
		{"an L4 does not hide the L3", func(f fstest.MapFS) {
			set(f, cpuDir+"/cpu1/cache/index3/shared_cpu_list", "1")
			set(f, cpuDir+"/cpu1/cache/index4/level", "4")
			set(f, cpuDir+"/cpu1/cache/index4/shared_cpu_list", "0-1")
		}, func(m machine) bool { return cpu(m, 1).L3 == 1 }},
		{"no cache: the socket", func(f fstest.MapFS) {
			removeBelow(f, cpuDir+"/cpu0/cache")
			removeBelow(f, cpuDir+"/cpu1/cache")
		}, func(m machine) bool { return cpu(m, 0).L3 == 0 && cpu(m, 1).L3 == 0 }},
		{"only per-CPU online files", func(f fstest.MapFS) {
			delete(f, cpuDir+"/online")
			delete(f, cpuDir+"/cpu0/online")
			set(f, cpuDir+"/cpu1/online", "0")
		}, func(m machine) bool { return !cpu(m, 0).Offline && cpu(m, 1).Offline }},
		{"possible but not present", func(f fstest.MapFS) {
			set(f, cpuDir+"/cpu7/online", "0")
		}, func(m machine) bool { return len(m.CPUs) == 2 }},
		{"node memory only in /proc", func(f fstest.MapFS) { delete(f, nodeDir+"/node0/meminfo") },
			func(m machine) bool { return m.Nodes[0].MemoryBytes == 1<<30 }},
		{"device on a node that is not there", func(f fstest.MapFS) {
			set(f, pciDir+"/0000:00:01.0/numa_node", "3")
			set(f, pciDir+"/0000:00:01.0/class", "0x020000")
		}, func(m machine) bool {
			return m.PCI[0].Node == topology.NoNode && m.PCI[0].Vendor == ""
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			files := twoCPUs()
			tt.change(files)
			spec, err := tree{attributes{files}}.spec()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := topology.NewMachine(spec); err != nil {
				t.Fatal(err)
			}
			if !tt.check(spec) {
				t.Errorf("got %+v", spec)
			}
		})
	}
}

func TestBadTrees(t *testing.T) {
	tests := []struct {
		name   string
		change func(files fstest.MapFS)
		want   []string
	}{
		{"empty", func(f fstest.MapFS) { clear(f) }, []string{cpuDir, "numalet topology snapshot"}},
		{"no CPU", func(f fstest.MapFS) { set(f, cpuDir+"/present", "9") },
			[]string{"no cpu directory"}},
		{"none online", func(f fstest.MapFS) { set(f, cpuDir+"/online", "") },
			[]string{"no online cpu"}},
		{"online is no list", func(f fstest.MapFS) { set(f, cpuDir+"/online", "0-x") },
			[]string{cpuDir + "/online", `"x" is not a number`}},
		{"online without end", func(f fstest.MapFS) { set(f, cpuDir+"/online", "0-4000000000") },
			[]string{cpuDir + "/online", "larger than"}},
		{"empty attribute",
			func(f fstest.MapFS) { set(f, cpuDir+"/cpu0/topology/physical_package_id", "") },
			[]string{"cpu0/topology/physical_package_id", "not a number"}},
		{"distance row too short",
			func(f fstest.MapFS) { set(f, nodeDir+"/node0/distance", "10 20") },
			[]string{"node0/distance", "2 distances to 1 nodes"}},
		{"no MemTotal", func(f fstest.MapFS) { set(f, "proc/meminfo", "nothing") },
			[]string{"proc/meminfo", "MemTotal"}},
		{"cpu on no node", func(f fstest.MapFS) {
			set(f, nodeDir+"/node0/cpulist", "0")
			delete(f, nodeDir+"/node0/cpu1")
		}, []string{"cpu 1", "node -1"}},
		{"cpu on two nodes", func(f fstest.MapFS) {
			set(f, nodeDir+"/node1/cpulist", "1")
			set(f, nodeDir+"/node1/meminfo", "MemTotal: 0 kB")
			set(f, nodeDir+"/node0/distance", "10 20")
		}, []string{"cpu 1 is on node 0 and on node 1"}},
		{"page size", func(f fstest.MapFS) {
			set(f,
				nodeDir+"/node0/hugepages/hugepages-bigkB/nr_hugepages", "0")
		},
			[]string{"hugepages-bigkB"}},
		{"device class", func(f fstest.MapFS) { set(f, pciDir+"/0000:00:01.0/class", "gpu") },
			[]string{"0000:00:01.0/class", "hex digits"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			files := twoCPUs()
			tt.change(files)
			_, err := Host(writeTree(t, files))
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
		})
	}
}

func TestDamagedPCIDatabaseNamesNothing(t *testing.T) {
	files := twoCPUs()
	set(files, pciDir+"/0000:00:01.0/vendor", "0x1af4")
	set(files, "usr/share/misc/pci.ids", "\tx\nC\n\t\t\n1")
	m, err := Host(writeTree(t, files))
	if err != nil {
		t.Fatal(err)
	}
	if got := m.PCI()[0].Name; got != "" {
		t.Errorf("name %q", got)
	}
}

// A link that leads out of the tree is not followed.
func TestLinksStayInTheTree(t *testing.T) {
	files := twoCPUs()
	delete(files, cpuDir+"/online")
	files[cpuDir+"/online"] = &fstest.MapFile{
		Data: []byte("../../../../../../../../../../etc/hostname"), Mode: os.ModeSymlink,
	}
	_, err := Host(writeTree(t, files))
	if err == nil || !strings.Contains(err.Error(), "escapes") {
		t.Errorf("error %v", err)
	}
}

func TestHugeFileIsRefused(t *testing.T) {
	files := twoCPUs()
	files[cpuDir+"/online"] = &fstest.MapFile{Data: make([]byte, maxText+1)}
	if _, err := (tree{attributes{files}}).spec(); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("error %v", err)
	}
}

func set(files fstest.MapFS, path, content string) {
	files[path] = &fstest.MapFile{Data: []byte(content + "\n"), Mode: 0o444}
}

func removeBelow(files fstest.MapFS, dir string) {
	for path := range files {
		if strings.HasPrefix(path, dir+"/") {
			delete(files, path)
		}
	}
}
