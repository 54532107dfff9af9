package discover

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/topology"
)

// WriteText draws m for people: sockets, nodes, cache groups, memory, PCI devices and distances, in
// at most 100 columns. Unless allPCI, it only shows PCI devices that pods are likely to get
// (graphics, network, NVMe, accelerators).
func WriteText(w io.Writer, m *topology.Machine, allPCI bool) error {
	p := picture{m: m, spec: m.Spec(), allPCI: allPCI}
	var b strings.Builder
	p.headline(&b)
	for _, group := range p.groups() {
		b.WriteString("\n")
		group.write(&b, "")
	}
	p.distances(&b)
	p.legend(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// picture draws one machine.
type picture struct {
	m      *topology.Machine
	spec   topology.Spec
	allPCI bool
}

// branch is a text with branches below it.
type branch struct {
	text  string
	under []branch
}

func (b branch) write(w *strings.Builder, indent string) {
	w.WriteString(strings.ReplaceAll(b.text, "\n", "\n"+indent) + "\n")
	for i, sub := range b.under {
		fork, next := "├─ ", "│  "
		if i == len(b.under)-1 {
			fork, next = "└─ ", "   "
		}
		w.WriteString(indent + fork)
		sub.write(w, indent+next)
	}
}

func (p picture) headline(b *strings.Builder) {
	if name := p.m.Name(); name != "" {
		fmt.Fprintln(b, ansi.Truncate(name, 100, "..."))
	}
	fmt.Fprintf(b, "%s, %s, %s, %s", count(len(p.m.Sockets()), "socket"),
		count(len(p.spec.Nodes), "node"), count(len(p.m.Cores()), "core"),
		count(p.m.Online().Size(), "CPU"))
	fmt.Fprintf(b, ", %s memory, %s\n",
		memory(p.m.MemoryBytes()), count(len(p.spec.PCI), "PCI device"))
	for _, of := range []struct {
		what string
		cpus cpuset.CPUSet
	}{{"offline", p.m.Offline()}, {"isolated", p.m.Isolated()}} {
		if of.cpus.IsEmpty() {
			continue
		}
		title := of.what + " CPUs "
		lines := wrap(strings.Split(of.cpus.String(), ","), ",", 80)
		fmt.Fprintln(b, title+strings.Join(lines, ",\n"+strings.Repeat(" ", len(title))))
	}
}

// groups returns the top branches: each socket with its nodes, the nodes without CPUs, and the
// devices without a node. A node that spans sockets is under each of them.
func (p picture) groups() []branch {
	var out []branch
	drawn := map[topology.NodeID]bool{}
	for _, socket := range p.m.Sockets() {
		cpus := p.m.CPUsOfSocket(socket)
		group := branch{text: fmt.Sprintf("socket %d", socket)}
		for _, n := range p.spec.Nodes {
			if here := cpus.Intersection(p.m.CPUsOfNode(n.ID)); !here.IsEmpty() {
				group.under = append(group.under, p.node(n, here, drawn[n.ID]))
				drawn[n.ID] = true
			}
		}
		out = append(out, group)
	}
	lone := branch{text: "nodes without CPUs"}
	for _, n := range p.spec.Nodes {
		if !drawn[n.ID] {
			lone.under = append(lone.under, p.node(n, cpuset.New(), false))
		}
	}
	unplaced := branch{text: "PCI devices without a node", under: p.devices(topology.NoNode)}
	for _, group := range []branch{lone, unplaced} {
		if len(group.under) > 0 {
			out = append(out, group)
		}
	}
	return out
}

// node draws the CPUs of a node that are on one socket, and the rest of the node unless it was
// drawn before.
func (p picture) node(n topology.Node, cpus cpuset.CPUSet, again bool) branch {
	b := branch{text: fmt.Sprintf("node %d", n.ID)}
	if again {
		b.text += "  (see above)"
	} else {
		b.text += "  " + memory(n.MemoryBytes) + " memory" + hugePagesText(n.HugePages)
	}
	for _, l3 := range p.m.L3s() {
		if here := cpus.Intersection(p.m.CPUsOfL3(l3)); !here.IsEmpty() {
			lines := wrap(p.cores(here), " ", 76)
			text := fmt.Sprintf("L3 %-3d  %s", l3, strings.Join(lines, "\n        "))
			b.under = append(b.under, branch{text: text})
		}
	}
	if !again {
		b.under = append(b.under, p.devices(n.ID)...)
	}
	return b
}

// cores lists online CPUs with the siblings of each core joined: "0-3+32-35".
func (p picture) cores(cpus cpuset.CPUSet) []string {
	var online []topology.CPU
	for _, id := range cpus.List() {
		if c, ok := p.m.CPU(id); ok {
			online = append(online, c)
		}
	}
	var words []string
	for _, word := range formatThreads(threadsByCore(online)) {
		if strings.Contains(word, "+") {
			words = append(words, word)
			continue
		}
		words = append(words, wrap(strings.Split(word, ","), ",", 76)...) // 0,2,4,... may be long
	}
	return words
}

// devices lists the devices of a node, those under one PCIe switch together.
func (p picture) devices(node topology.NodeID) []branch {
	var out []branch
	at := map[string]int{} // the places of switches in out
	for _, d := range p.spec.PCI {
		kind, usual := pciKind(d.Class)
		if d.Node != node || !usual && !p.allPCI {
			continue
		}
		ids := strings.TrimPrefix(d.Vendor, "0x") + ":" + strings.TrimPrefix(d.Device, "0x")
		line := fmt.Sprintf("%-7s %-12s  %-9s  %s", kind, d.Address, ids, d.Name)
		leaf := branch{text: ansi.Truncate(strings.TrimRight(line, " "), 88, "...")}
		upstream := d.Switch()
		if upstream == "" {
			out = append(out, leaf)
			continue
		}
		i, known := at[upstream]
		if !known {
			i = len(out)
			at[upstream] = i
			out = append(out, branch{text: fmt.Sprintf("PCIe switch %s, root %s", upstream, d.Root())})
		}
		out[i].under = append(out[i].under, leaf)
	}
	return out
}

// pciKind returns a word for a class code, and whether pods usually get such devices.
// https://admin.pci-ids.ucw.cz/read/PD
func pciKind(class string) (kind string, usual bool) {
	for _, k := range []struct {
		prefix, kind string
		usual        bool
	}{
		{"0x0108", "nvme", true}, {"0x02", "network", true}, {"0x03", "gpu", true},
		{"0x12", "accel", true}, {"0x0b40", "coproc", true}, {"0x01", "storage", false},
		{"0x04", "media", false}, {"0x05", "memory", false}, {"0x06", "bridge", false},
		{"0x0c03", "usb", false},
	} {
		if strings.HasPrefix(class, k.prefix) {
			return k.kind, k.usual
		}
	}
	return "other", false
}

func (p picture) distances(b *strings.Builder) {
	if len(p.spec.Nodes) < 2 {
		return
	}
	b.WriteString("\ndistance")
	for _, to := range p.spec.Nodes {
		fmt.Fprintf(b, " %4d", to.ID)
	}
	for _, from := range p.spec.Nodes {
		fmt.Fprintf(b, "\n%8d", from.ID)
		for _, to := range p.spec.Nodes {
			fmt.Fprintf(b, " %4d", p.m.Distance(from.ID, to.ID))
		}
	}
	b.WriteString("\n")
}

func (p picture) legend(b *strings.Builder) {
	var notes []string
	if p.m.ThreadsPerCore() > 1 {
		notes = append(notes, "a+b: SMT siblings")
	}
	hidden := len(slices.DeleteFunc(p.m.PCI(), func(d topology.PCIDevice) bool {
		_, usual := pciKind(d.Class)
		return usual || p.allPCI
	}))
	if hidden > 0 {
		notes = append(notes,
			fmt.Sprintf("%s not shown (--all-pci)", count(hidden, "other PCI device")))
	}
	if len(notes) > 0 {
		b.WriteString("\n" + strings.Join(notes, "; ") + "\n")
	}
}

func hugePagesText(pools []topology.HugePages) string {
	var out []string
	for _, p := range pools {
		if p.Count > 0 {
			out = append(out, fmt.Sprintf("%d x %s", p.Count, formatBytes(p.PageBytes)))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return ", huge pages " + strings.Join(out, " and ")
}

// memory returns an amount for people, with two or three digits.
func memory(n uint64) string {
	if n == 0 {
		return "no"
	}
	for i, unit := range binaryUnits() {
		size := uint64(1) << (10 * (len(binaryUnits()) - i))
		switch {
		case n < size:
		case n%size == 0 || n/size >= 100:
			return fmt.Sprintf("%d %sB", n/size, unit)
		default:
			return fmt.Sprintf("%.1f %sB", float64(n)/float64(size), unit)
		}
	}
	return fmt.Sprintf("%d B", n)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// wrap joins words to lines of at most width bytes; a longer word gets its own line.
func wrap(words []string, separator string, width int) []string {
	var lines []string
	for _, word := range words {
		last := len(lines) - 1
		if last < 0 || len(lines[last])+len(separator)+len(word) > width {
			lines = append(lines, word)
			continue
		}
		lines[last] += separator + word
	}
	return lines
}
