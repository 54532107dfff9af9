package discover

import (
	_ "embed"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/numalet/numalet/topology"
)

//go:embed machine.yaml.tmpl
var machineYAML string

// WriteYAML writes m in our YAML, for people to read and change. ParseYAML returns an equal
// machine, if the cores and L3 groups of m have the lowest id of their CPUs, as they should. Names
// are written with Go's escapes, which YAML shares.
func WriteYAML(w io.Writer, m *topology.Machine) error {
	spec := m.Spec()
	list := func(keep func(topology.CPU) bool) string {
		return formatList(idsWhere(spec.CPUs, keep))
	}
	text, err := template.New("machine").Funcs(template.FuncMap{
		"bytes": formatBytes, "join": strings.Join, "quote": strconv.Quote,
		"cpus": func(id topology.NodeID) string {
			return list(func(c topology.CPU) bool { return c.Node == id })
		},
	}).Parse(machineYAML)
	if err != nil {
		return err
	}
	return text.Execute(w, struct {
		topology.Spec
		Sockets, Cores, L3 []string
		Offline, Isolated  string
	}{
		spec, socketsYAML(spec.CPUs), coresYAML(spec.CPUs), cachesYAML(spec.CPUs),
		list(func(c topology.CPU) bool { return c.Offline }),
		list(func(c topology.CPU) bool { return c.Isolated }),
	})
}

// socketsYAML lists the sockets, nil if each node is one. Offline CPUs may be on none.
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

// coresYAML lists the cores with more than one thread.
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

// cachesYAML lists the L3 groups, nil if ParseYAML assumes the same.
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
			continue // its own group
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

func idsWhere(cpus []topology.CPU, keep func(topology.CPU) bool) []int {
	var ids []int
	for _, c := range cpus {
		if keep(c) {
			ids = append(ids, c.ID)
		}
	}
	return ids
}
