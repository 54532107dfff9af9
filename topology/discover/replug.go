package discover

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/numalet/numalet/topology"
)

// OnlineCPUs returns the kernel's list of online CPUs on the machine below root ("": this machine).
// It reads one small file: a cheap sign that Refresh would find a change.
func OnlineCPUs(root string) (string, error) {
	raw, err := os.ReadFile(filepath.Join("/", root, cpuDir, "online"))
	if err != nil {
		return "", fmt.Errorf("read which CPUs are online: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

// Isolated holds the CPUs that the kernel was booted to keep free of other work, isolcpus= and
// nohz_full=, in its list syntax; "": none.
type Isolated struct{ Scheduler, Ticks string }

// nullList is an empty list as some kernels print it.
const nullList = "(null)"

// IsolatedCPUs reads Isolated from the machine below root.
func IsolatedCPUs(root string) (Isolated, error) {
	var out Isolated
	for file, to := range map[string]*string{
		"isolated": &out.Scheduler, "nohz_full": &out.Ticks,
	} {
		raw, err := os.ReadFile(filepath.Join("/", root, cpuDir, file))
		if err != nil && !absent(err) {
			return out, fmt.Errorf("read isolated CPUs: %w", err)
		}
		if *to = strings.TrimSpace(string(raw)); *to == nullList {
			*to = ""
		}
	}
	return out, nil
}

// rememberPlaces gives CPUs that are offline now the places that they had before. The kernel says
// nothing about them, and names cores and caches by the lowest online CPU: without its first thread
// a core would have another id.
func rememberPlaces(now, before []topology.CPU) {
	was := map[int]topology.CPU{}
	for _, c := range before {
		was[c.ID] = c
	}
	cores, caches := make([]member, len(now)), make([]member, len(now))
	for i, c := range now {
		b, known := was[c.ID]
		if known && c.Offline && b.Node != topology.NoNode {
			now[i].Node, now[i].Socket = b.Node, b.Socket
		}
		cores[i] = member{c.ID, int(c.Core), int(b.Core), known, c.Offline}
		caches[i] = member{c.ID, int(c.L3), int(b.L3), known, c.Offline}
	}
	rejoin(cores)
	rejoin(caches)
	for i := range now {
		now[i].Core, now[i].L3 = topology.CoreID(cores[i].group), topology.L3ID(caches[i].group)
	}
}

// member is a CPU in a core or a cache; a group's number is its lowest CPU.
type member struct {
	id, group, before int
	known, offline    bool // known: before is valid
}

// rejoin puts offline members back beside their former companions. If none of these is online, the
// group keeps its number.
func rejoin(all []member) {
	online := map[int]int{} // present group by former group
	for _, m := range all {
		if m.known && !m.offline {
			online[m.before] = m.group
		}
	}
	lowest := map[int]int{}
	for i, m := range all {
		if !m.known || !m.offline {
			continue
		}
		group, ok := online[m.before]
		if !ok {
			all[i].group = m.before
			continue
		}
		all[i].group = group
		low, seen := lowest[group]
		if !seen {
			low = group
		}
		lowest[group] = min(low, m.id)
	}
	for i := range all {
		if low, ok := lowest[all[i].group]; ok {
			all[i].group = low
		}
	}
}
