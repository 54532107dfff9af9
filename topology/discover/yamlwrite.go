package discover

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/numalet/numalet/topology"
)

// WriteYAML writes m in our YAML, for people to read and change. ParseYAML gives an equal machine
// back, if cores and L3 groups of m have the lowest id of their CPUs, as they should. Names are
// written with Go's escapes, which YAML knows too.
func WriteYAML(w io.Writer, m *topology.Machine) error {
	spec := m.Spec()
	var b strings.Builder
	if spec.Name != "" {
		fmt.Fprintf(&b, "name: %s\n", strconv.Quote(spec.Name))
	}
	b.WriteString("nodes:\n")
	for _, n := range spec.Nodes {
		fmt.Fprintf(&b, "- {%s}\n", strings.Join(nodeYAML(n, spec.CPUs), ", "))
	}
	if sockets := socketsYAML(spec.CPUs); len(sockets) > 0 {
		fmt.Fprintf(&b, "sockets: {%s}\n", strings.Join(sockets, ", "))
	}
	writeList(&b, "cores", coresYAML(spec.CPUs))
	writeList(&b, "l3", cachesYAML(spec.CPUs))
	if off := idsWhere(spec.CPUs, func(c topology.CPU) bool { return c.Offline }); len(off) > 0 {
		fmt.Fprintf(&b, "offline: %q\n", formatList(off))
	}
	if len(spec.PCI) > 0 {
		b.WriteString("pci:\n")
	}
	for _, d := range spec.PCI {
		fmt.Fprintf(&b, "- {%s}\n", strings.Join(pciYAML(d), ", "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func nodeYAML(n topology.Node, cpus []topology.CPU) []string {
	fields := []string{fmt.Sprintf("id: %d", n.ID)}
	if ids := idsWhere(cpus, func(c topology.CPU) bool { return c.Node == n.ID }); len(ids) > 0 {
		fields = append(fields, fmt.Sprintf("cpus: %q", formatList(ids)))
	}
	if n.MemoryBytes > 0 {
		fields = append(fields, "memory: "+formatBytes(n.MemoryBytes))
	}
	var pools []string
	for _, p := range n.HugePages {
		pools = append(pools, fmt.Sprintf("%s: %d", formatBytes(p.PageBytes), p.Count))
	}
	if len(pools) > 0 {
		fields = append(fields, "hugepages: {"+strings.Join(pools, ", ")+"}")
	}
	var row []string
	for _, to := range slices.Sorted(maps.Keys(n.Distances)) {
		row = append(row, fmt.Sprintf("%d: %d", to, n.Distances[to]))
	}
	if len(row) > 0 {
		fields = append(fields, "distances: {"+strings.Join(row, ", ")+"}")
	}
	return fields
}

// socketsYAML lists the sockets, none when each node is one. Offline CPUs may be on none.
func socketsYAML(cpus []topology.CPU) []string {
	if !slices.ContainsFunc(cpus, func(c topology.CPU) bool {
		return c.Socket != topology.SocketID(c.Node)
	}) {
		return nil
	}
	members := map[topology.SocketID][]int{}
	for _, c := range cpus {
		if c.Socket != noSocket {
			members[c.Socket] = append(members[c.Socket], c.ID)
		}
	}
	var out []string
	for _, socket := range slices.Sorted(maps.Keys(members)) {
		out = append(out, fmt.Sprintf("%d: %q", socket, formatList(members[socket])))
	}
	return out
}

// coresYAML lists the cores of more than one thread.
func coresYAML(cpus []topology.CPU) []string {
	var cores [][]int
	for _, threads := range threadsByCore(cpus) {
		if len(threads) > 1 {
			cores = append(cores, threads)
		}
	}
	return formatThreads(cores)
}

// threadsByCore lists the threads of each core, cores by ascending id.
func threadsByCore(cpus []topology.CPU) [][]int {
	members := map[topology.CoreID][]int{}
	for _, c := range cpus {
		members[c.Core] = append(members[c.Core], c.ID)
	}
	var out [][]int
	for _, core := range slices.Sorted(maps.Keys(members)) {
		out = append(out, members[core])
	}
	return out
}

// cachesYAML lists the L3 groups, none when they are what ParseYAML assumes.
func cachesYAML(cpus []topology.CPU) []string {
	assumed := slices.Clone(cpus)
	for i := range assumed {
		assumed[i].L3 = noL3
	}
	groupWithoutCache(assumed)
	if slices.Equal(assumed, cpus) {
		return nil
	}
	members := map[topology.L3ID][]int{}
	for i, c := range cpus {
		if c.Offline && assumed[i].L3 == c.L3 && !shared(cpus, c) {
			continue // a group of its own
		}
		members[c.L3] = append(members[c.L3], c.ID)
	}
	var out []string
	for _, id := range slices.Sorted(maps.Keys(members)) {
		out = append(out, formatList(members[id]))
	}
	return out
}

func shared(cpus []topology.CPU, of topology.CPU) bool {
	return len(idsWhere(cpus, func(c topology.CPU) bool { return c.L3 == of.L3 })) > 1
}

func pciYAML(d topology.PCIDevice) []string {
	fields := []string{"address: " + strconv.Quote(d.Address)}
	for _, f := range [][2]string{{"class", d.Class}, {"vendor", d.Vendor}, {"device", d.Device}} {
		if f[1] != "" {
			fields = append(fields, f[0]+": "+f[1])
		}
	}
	if d.Name != "" {
		fields = append(fields, "name: "+strconv.Quote(d.Name))
	}
	if d.Node != topology.NoNode {
		fields = append(fields, fmt.Sprintf("node: %d", d.Node))
	}
	return fields
}

func writeList(b *strings.Builder, name string, entries []string) {
	if len(entries) == 0 {
		return
	}
	fmt.Fprintf(b, "%s: [\"%s\"]\n", name, strings.Join(entries, `", "`))
}

func idsWhere(cpus []topology.CPU, keep func(topology.CPU) bool) []int {
	var ids []int
	for _, c := range cpus {
		if keep(c) {
			ids = append(ids, c.ID)
		}
	}
	return ids
}
