package test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/cpuset"
)

// TestEveryOptionChange restarts an agent with other options, with other reservations and on other
// machines, with ten pods running.
func TestEveryOptionChange(t *testing.T) {
	t.Parallel()
	m := newMigrant(t, policies{"static", "Static", "best-effort"})
	options := func(names ...string) func() {
		return func() {
			on := map[string]string{}
			for _, name := range names {
				on[name] = "true"
			}
			m.Settings["cpuManagerPolicyOptions"] = on
		}
	}
	set := func(key string, value any) func() { return func() { m.Settings[key] = value } }
	reserved := func(memory string, nodes ...string) func() {
		return func() {
			m.Settings["systemReserved"] = map[string]string{"cpu": "1", "memory": memory}
			var list []any
			for node, size := range nodes {
				list = append(list,
					map[string]any{"numaNode": node, "limits": map[string]string{"memory": size}})
			}
			m.Settings["reservedMemory"] = list
		}
	}
	full := "nodes:\n"
	for node := range 4 {
		full += fmt.Sprintf("- {id: %d, cpus: \"%d-%d,%d-%d\", memory: 64Gi, hugepages: {2Mi: "+
			"512, 1Gi: 4}}\n", node, 8*node, 8*node+7, 8*node+32, 8*node+39)
	}
	full += "cores: [\"0-31+32-63\"]\n"
	machine := func(text, online string) func() {
		return func() {
			file := filepath.Join(m.Dir, "machine.yaml")
			writeFile(t, file, text)
			m.Args[len(m.Args)-1] = "--topology-from=" + file
			m.online = cpus(t, online)
		}
	}
	lines := strings.SplitAfter(full, "\n")
	for _, step := range []struct {
		name   string
		change func()
		// full is set if a new pod may find no room.
		full bool
	}{
		{"full-pcpus-only", options("full-pcpus-only"), false},
		{"strict-cpu-reservation", func() {
			options("strict-cpu-reservation")()
			m.offLimits = cpuset.New(0)
		}, false},
		{"distribute-cpus-across-numa", func() {
			options("distribute-cpus-across-numa")()
			m.offLimits = cpuset.New()
		}, false},
		{"prefer-align-cpus-by-uncorecache", options("prefer-align-cpus-by-uncorecache"), false},
		{"gate", set("featureGates", map[string]bool{"CPUManagerPolicyAlphaOptions": true}), false},
		{"align-by-socket", options("align-by-socket"), false},
		{"distribute-cpus-across-cores", options("distribute-cpus-across-cores"), false},
		{"no options", options(), false},
		{"pod scope", set("topologyManagerScope", "pod"), false},
		{"container scope", set("topologyManagerScope", "container"), false},
		{"prefer-closest-numa-nodes",
			set("topologyManagerPolicyOptions",
				map[string]string{"prefer-closest-numa-nodes": "true"}), false},
		{"other reserved CPUs, which pods have", set("reservedSystemCPUs", "1-3,33-40"), false},
		{"computed again", set("reservedSystemCPUs", ""), false},
		{"more memory reserved", reserved("10Gi", "5Gi", "5220Mi"), false},
		{"memory reserved that pods have", reserved("50Gi", "50Gi", "100Mi"), false},
		{"as it was", reserved("1Gi", "1124Mi"), false},
		{"the machine from a file", machine(full, "0-63"), false},
		{"less memory", machine(strings.ReplaceAll(full, "64Gi", "16Gi"), "0-63"), true},
		{"more memory", machine(strings.ReplaceAll(full, "64Gi", "128Gi"), "0-63"), false},
		{"no huge pages", machine(strings.ReplaceAll(full, ", hugepages: {2Mi: 512, 1Gi: 4}", ""),
			"0-63"), false},
		{"fewer CPUs", machine(full+"offline: \"8-11,40-43\"\n", "0-7,12-39,44-63"), false},
		{"fewer nodes", machine(strings.Join(slices.Delete(slices.Clone(lines), 3, 6), "")+
			"cores: [\"0-15+32-47\"]\n", "0-15,32-47"), true},
		{"one node", machine(lines[0]+lines[1]+"cores: [\"0-7+32-39\"]\n", "0-7,32-39"), true},
		{"all nodes", machine(full, "0-63"), false},
	} {
		m.restart(step.change)
		m.check(step.name)
		if !step.full {
			m.admits(step.name)
		}
	}
}
