package discover

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/numalet/numalet/topology"
)

// OnlineCPUs is the kernel's list of the CPUs that are online, on the machine below root ("" is
// this one). It is one small file: a cheap sign that Refresh would find another machine.
func OnlineCPUs(root string) (string, error) {
	raw, err := os.ReadFile(filepath.Join("/", root, cpuDir, "online"))
	if err != nil {
		return "", fmt.Errorf("read which CPUs are online: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

// Isolated is what the kernel was booted to keep free of other work: the CPUs of isolcpus= and
// nohz_full=, in its list syntax, "" for none.
type Isolated struct{ Scheduler, Ticks string }

// nullList is how some kernels print a list of no CPU.
const nullList = "(null)"

// IsolatedCPUs reads it from the machine below root.
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

// rememberPlaces gives CPUs that are offline now the places that they had before. The kernel tells
// nothing of them, and names cores and caches by the lowest CPU that is online: without its first
// thread a core would be another one.
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

// member is a CPU in a core or a cache; a group's number is that of its lowest CPU.
type member struct {
	id, group, before int
	known, offline    bool // known: before is valid
}

// rejoin puts the offline members back beside those that they were with. If none of these is
// online, their group stays what it was.
func rejoin(all []member) {
	online := map[int]int{} // the group now, by the group before
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
