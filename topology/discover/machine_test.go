package discover

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/numalet/numalet/topology"
)

// rendered returns a machine as the kernel would show it: /sys, /proc and a PCI database with the
// names of the devices.
func rendered(spec topology.Spec) fstest.MapFS {
	r := rendering{spec: spec, files: fstest.MapFS{}}
	var online, present, nodes []int
	for _, c := range spec.CPUs {
		present = append(present, c.ID)
		if !c.Offline {
			online = append(online, c.ID)
		}
		r.cpu(c)
	}
	r.file(cpuDir+"/online", formatList(online))
	r.file(cpuDir+"/present", formatList(present))
	r.file(cpuDir+"/isolated", formatList(idsWhere(spec.CPUs,
		func(c topology.CPU) bool { return c.Isolated })))
	var total uint64
	for _, n := range spec.Nodes {
		nodes = append(nodes, int(n.ID))
		total += n.MemoryBytes
		r.node(n)
	}
	r.file(nodeDir+"/online", formatList(nodes))
	r.file("proc/meminfo", fmt.Sprintf(
		"MemTotal: %d kB\nMemFree: 1 kB\nHugepagesize: 2048 kB\nHugetlb: 0 kB", total/1024))
	r.file("proc/cpuinfo", "processor\t: 0\nmodel name\t: "+spec.Name)
	r.pci()
	return r.files
}

type rendering struct {
	spec  topology.Spec
	files fstest.MapFS
}

func (r rendering) file(path, content string) {
	r.files[path] = &fstest.MapFile{Data: []byte(content + "\n"), Mode: 0o444}
}

func (r rendering) link(path, target string) {
	r.files[path] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
}

func (r rendering) cpu(c topology.CPU) {
	dir := fmt.Sprintf("%s/cpu%d", cpuDir, c.ID)
	if c.Offline {
		r.file(dir+"/online", "0")
		return // the kernel removes the rest
	}
	r.file(dir+"/online", "1")
	with := func(same func(o topology.CPU) bool) string {
		return formatList(idsWhere(r.spec.CPUs,
			func(o topology.CPU) bool { return !o.Offline && same(o) }))
	}
	threads := with(func(o topology.CPU) bool { return o.Core == c.Core })
	r.file(dir+"/topology/physical_package_id", strconv.Itoa(int(c.Socket)))
	r.file(dir+"/topology/core_id", strconv.Itoa(int(c.Core)%7)) // repeats, as on real machines
	r.file(dir+"/topology/thread_siblings_list", threads)
	l3 := with(func(o topology.CPU) bool { return o.L3 == c.L3 })
	for i, cache := range []struct{ level, kind, shared string }{
		{"1", "Data", threads}, {"1", "Instruction", threads}, {"2", "Unified", threads},
		{"3", "Unified", l3},
	} {
		at := fmt.Sprintf("%s/cache/index%d", dir, i)
		r.file(at+"/level", cache.level)
		r.file(at+"/type", cache.kind)
		r.file(at+"/size", "1024K")
		r.file(at+"/shared_cpu_list", cache.shared)
		r.file(at+"/shared_cpu_map", cache.shared) // ghw only uses it as a key
	}
}

func (r rendering) node(n topology.Node) {
	dir := fmt.Sprintf("%s/node%d", nodeDir, n.ID)
	r.file(dir+"/meminfo", fmt.Sprintf("Node %d MemTotal: %d kB\nNode %d MemFree: 0 kB",
		n.ID, n.MemoryBytes/1024, n.ID))
	var cpus []int
	for _, c := range r.spec.CPUs {
		if c.Node != n.ID {
			continue
		}
		r.link(fmt.Sprintf("%s/cpu%d", dir, c.ID), fmt.Sprintf("../../cpu/cpu%d", c.ID))
		if !c.Offline {
			cpus = append(cpus, c.ID)
		}
	}
	r.file(dir+"/cpulist", formatList(cpus))
	r.files[dir+"/hugepages"] = &fstest.MapFile{Mode: fs.ModeDir | 0o755}
	for _, p := range n.HugePages {
		r.file(fmt.Sprintf("%s/hugepages/hugepages-%dkB/nr_hugepages", dir, p.PageBytes/1024),
			strconv.FormatUint(p.Count, 10))
	}
	var row []string
	for _, to := range r.spec.Nodes {
		if d, ok := n.Distances[to.ID]; ok {
			row = append(row, strconv.Itoa(d))
		}
	}
	if len(row) > 0 {
		r.file(dir+"/distance", strings.Join(row, " "))
	}
}

func (r rendering) pci() {
	names := map[string]string{}
	for _, d := range r.spec.PCI {
		dir := pciDir + "/" + d.Address
		if d.Path != "" {
			dir = "sys/devices/" + d.Path + "/" + d.Address
			r.link(pciDir+"/"+d.Address, "../../../devices/"+d.Path+"/"+d.Address)
		}
		r.file(dir+"/class", d.Class)
		r.file(dir+"/vendor", d.Vendor)
		r.file(dir+"/device", d.Device)
		r.file(dir+"/numa_node", strconv.Itoa(int(d.Node)))
		names[d.Vendor[2:]+d.Device[2:]] = d.Name
	}
	var db strings.Builder
	for _, id := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(&db, "%s  A vendor\n\t%s  %s\n", id[:4], id[4:], names[id])
	}
	r.file("usr/share/misc/pci.ids", db.String())
}

// writeTree writes files below a new directory.
func writeTree(t *testing.T, files fstest.MapFS) string {
	t.Helper()
	dir := t.TempDir()
	for _, path := range slices.Sorted(maps.Keys(files)) {
		f, at := files[path], filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch {
		case f.Mode.IsDir():
			err = os.MkdirAll(at, 0o755)
		case f.Mode&fs.ModeSymlink != 0:
			err = os.Symlink(string(f.Data), at)
		default:
			err = os.WriteFile(at, f.Data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// asSysfsShows returns spec without what the kernel does not tell of offline CPUs.
func asSysfsShows(spec topology.Spec) topology.Spec {
	out := spec
	out.CPUs = slices.Clone(spec.CPUs)
	for i, c := range spec.CPUs {
		if c.Offline {
			var sockets []topology.SocketID
			for _, o := range spec.CPUs {
				if o.Node == c.Node && !o.Offline {
					sockets = append(sockets, o.Socket)
				}
			}
			slices.Sort(sockets)
			out.CPUs[i].Socket = noSocket
			if sockets = slices.Compact(sockets); len(sockets) == 1 {
				out.CPUs[i].Socket = sockets[0]
			}
			out.CPUs[i].Core, out.CPUs[i].L3 = topology.CoreID(c.ID), topology.L3ID(c.ID)
			continue
		}
		lowest := func(same func(topology.CPU) bool) int {
			return slices.Min(idsWhere(spec.CPUs,
				func(o topology.CPU) bool { return !o.Offline && same(o) }))
		}
		sameCore := func(o topology.CPU) bool { return o.Core == c.Core }
		sameL3 := func(o topology.CPU) bool { return o.L3 == c.L3 }
		out.CPUs[i].Core, out.CPUs[i].L3 = topology.CoreID(lowest(sameCore)),
			topology.L3ID(lowest(sameL3))
	}
	return out
}

func diffSpecs(want, got topology.Spec) string {
	return cmp.Diff(want, got, cmpopts.EquateEmpty())
}

// anyMachine draws a machine: sockets with one or two nodes, cores with one to three threads,
// shuffled ids with gaps, cores and L3 groups never across nodes, some CPUs offline, some nodes
// with memory only.
func anyMachine(t *rapid.T) topology.Spec {
	shuffled := func(n int, label string) []int {
		all := make([]int, 2*n+1)
		for i := range all {
			all[i] = i
		}
		return rapid.Permutation(all).Draw(t, label)[:n]
	}
	sockets := rapid.IntRange(1, 3).Draw(t, "sockets")
	perSocket := rapid.IntRange(1, 2).Draw(t, "nodes per socket")
	lone := rapid.IntRange(0, 2).Draw(t, "nodes without CPUs")
	names := rapid.StringMatching(`[A-Za-z][A-Za-z0-9 :@()#'"\\é]{0,20}[a-z]`)
	spec := topology.Spec{Name: names.Draw(t, "name")}
	nodeIDs := shuffled(sockets*perSocket+lone, "node ids")
	cpuIDs := shuffled(sockets*perSocket*12, "cpu ids")
	for i := range sockets * perSocket {
		node := topology.NodeID(nodeIDs[i])
		l3 := topology.L3ID(-1)
		for core := range rapid.IntRange(1, 4).Draw(t, "cores") {
			threads := cpuIDs[:rapid.IntRange(1, 3).Draw(t, "threads")]
			cpuIDs = cpuIDs[len(threads):]
			if core == 0 || rapid.Bool().Draw(t, "new L3") {
				l3 = topology.L3ID(threads[0])
			}
			for _, id := range threads {
				spec.CPUs = append(spec.CPUs, topology.CPU{
					ID: id, Node: node, Socket: topology.SocketID(i / perSocket),
					Core: topology.CoreID(threads[0]), L3: l3,
					Offline:  len(spec.CPUs) > 0 && rapid.IntRange(0, 4).Draw(t, "offline") == 0,
					Isolated: rapid.IntRange(0, 4).Draw(t, "isolated") == 0,
				})
			}
		}
	}
	slices.SortFunc(spec.CPUs, func(a, b topology.CPU) int { return a.ID - b.ID })
	numberGroups(spec.CPUs)
	slices.Sort(nodeIDs)
	for _, id := range nodeIDs {
		spec.Nodes = append(spec.Nodes, anyNode(t, id, nodeIDs))
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "devices") {
		device := rapid.IntRange(0, 65535).Draw(t, "device id")
		spec.PCI = append(spec.PCI, topology.PCIDevice{
			Address: fmt.Sprintf("0000:%02x:00.0", i), Class: "0x020000",
			Vendor: "0x15b3", Device: fmt.Sprintf("0x%04x", device),
			Path: rapid.SampledFrom([]string{"", "pci0000:00", "pci0000:40/0000:40:01.1",
				"pci0000:40/0000:40:01.0/0000:41:00.0/0000:42:04.0",
				"pci0000:64/0000:64:00.5/pci10000:00/10000:00:02.0"}).Draw(t, "path"),
			Node: topology.NodeID(rapid.SampledFrom(append(nodeIDs, -1)).Draw(t, "node of device")),
		})
	}
	return spec
}

func anyNode(t *rapid.T, id int, all []int) topology.Node {
	n := topology.Node{ID: topology.NodeID(id), Distances: map[topology.NodeID]int{}}
	n.MemoryBytes = 1024 * rapid.Uint64Range(0, 1<<32).Draw(t, "memory")
	for _, to := range all {
		n.Distances[topology.NodeID(to)] = rapid.IntRange(10, 254).Draw(t, "distance")
	}
	for _, size := range []uint64{2 << 20, 1 << 30} {
		if rapid.Bool().Draw(t, "has pages") {
			n.HugePages = append(n.HugePages, topology.HugePages{
				PageBytes: size, Count: rapid.Uint64Range(0, 1000).Draw(t, "pages"),
			})
		}
	}
	return n
}

// numberGroups renames cores and L3 groups to their lowest CPU.
func numberGroups(cpus []topology.CPU) {
	core, l3 := map[topology.CoreID]int{}, map[topology.L3ID]int{}
	for i, c := range cpus {
		if _, ok := core[c.Core]; !ok {
			core[c.Core] = c.ID
		}
		if _, ok := l3[c.L3]; !ok {
			l3[c.L3] = c.ID
		}
		cpus[i].Core, cpus[i].L3 = topology.CoreID(core[c.Core]), topology.L3ID(l3[c.L3])
	}
}
