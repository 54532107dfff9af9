package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/featuregate"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/internal/quantity"
)

// cpuOption describes a policy option of the CPU manager: its feature gate (empty: none), and the
// options that it excludes.
type cpuOption struct {
	gate     featuregate.Feature
	excludes []string
}

func cpuOptions() map[string]cpuOption {
	const beta, alpha = "CPUManagerPolicyBetaOptions", "CPUManagerPolicyAlphaOptions"
	return map[string]cpuOption{
		cpumanager.OptionFullPCPUsOnly: {
			excludes: []string{cpumanager.OptionDistributeCPUsAcrossCores}},
		cpumanager.OptionStrictReservation: {},
		cpumanager.OptionPreferAlignByUncoreCache: {excludes: []string{
			cpumanager.OptionDistributeCPUsAcrossCores, cpumanager.OptionDistributeCPUsAcrossNUMA}},
		cpumanager.OptionDistributeCPUsAcrossNUMA: {
			gate: beta, excludes: []string{cpumanager.OptionDistributeCPUsAcrossCores}},
		cpumanager.OptionAlignBySocket:             {gate: alpha},
		cpumanager.OptionDistributeCPUsAcrossCores: {gate: alpha},
	}
}

func validateCPUManager(c *Config, p *problems) {
	k := &c.Kubelet
	validateCPUOptions(c, p)
	if k.CPUManagerPolicy != "static" || k.ReservedSystemCPUs != "" {
		return
	}
	var milli int64
	for _, reserved := range []map[string]string{k.KubeReserved, k.SystemReserved} {
		if list, err := ParseReserved(reserved); err == nil {
			milli += list.Cpu().MilliValue()
		}
	}
	if milli == 0 {
		p.invalid("cpuManagerPolicy", k.CPUManagerPolicy,
			"the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than "+
				"zero; set kubeReserved.cpu, systemReserved.cpu or reservedSystemCPUs "+
				"(--reserved-cpus)")
	}
}

const cpuOptionsField = "cpuManagerPolicyOptions"

func validateCPUOptions(c *Config, p *problems) {
	k, known := &c.Kubelet, cpuOptions()
	p.forbid(len(k.CPUManagerPolicyOptions) > 0 && k.CPUManagerPolicy == "none", cpuOptionsField,
		"policy none takes no options")
	on := map[string]bool{}
	for name, text := range k.CPUManagerPolicyOptions {
		at := cpuOptionsField + "." + name
		if !p.choose(at, name, slices.Sorted(maps.Keys(known))...) {
			continue
		}
		value, err := strconv.ParseBool(text)
		switch gate := known[name].gate; {
		case err != nil:
			p.invalid(at, text, "must be true or false")
		case gate != "" && !c.Gates.Enabled(gate):
			p.forbid(true, at, "needs feature gate "+string(gate))
		default:
			on[name] = value
		}
	}
	p.cpuConflicts(on, k.TopologyManagerPolicy)
}

// cpuConflicts reports enabled options that exclude each other or the topology manager's policy.
func (p *problems) cpuConflicts(on map[string]bool, topologyPolicy string) {
	known := cpuOptions()
	for name := range on {
		for _, other := range known[name].excludes {
			p.forbid(on[name] && on[other], cpuOptionsField+"."+name, "cannot be used with "+other)
		}
	}
	p.forbid(on[cpumanager.OptionAlignBySocket] &&
		topologyPolicy == kubeletv1beta1.SingleNumaNodeTopologyManagerPolicy,
		cpuOptionsField+"."+cpumanager.OptionAlignBySocket,
		"cannot be used with topologyManagerPolicy single-numa-node")
}

// CheckCPUOptions refuses options of the CPU manager that exclude each other or the topology
// manager's policy, as Load does. It does not check feature gates.
func CheckCPUOptions(options []string, topologyPolicy string) error {
	on := map[string]bool{}
	for _, name := range options {
		on[name] = true
	}
	var p problems
	p.cpuConflicts(on, topologyPolicy)
	return p.err()
}

func validateTopology(c *Config, p *problems) {
	for name, value := range c.Kubelet.TopologyManagerPolicyOptions {
		at := "topologyManagerPolicyOptions." + name
		switch name {
		case "prefer-closest-numa-nodes":
			if _, err := strconv.ParseBool(value); err != nil {
				p.invalid(at, value, "must be true or false")
			}
		case "max-allowable-numa-nodes":
			if n, err := strconv.Atoi(value); err != nil || n < 8 {
				p.invalid(at, value, "must be a number, at least 8")
			}
		default:
			p.choose(at, name, "max-allowable-numa-nodes", "prefer-closest-numa-nodes")
		}
	}
}

func validateMemory(c *Config, p *problems) {
	k := &c.Kubelet
	if k.MemoryManagerPolicy == kubeletv1beta1.StaticMemoryManagerPolicy &&
		len(k.ReservedMemory) == 0 {
		p.required("reservedMemory", "memoryManagerPolicy Static needs it: "+
			"kubeReserved, systemReserved and evictionHard memory, such as "+
			"{numaNode: 0, limits: {memory: 1Gi}}")
	}
	type key struct {
		node int32
		name v1.ResourceName
	}
	seen := map[key]bool{}
	for i, r := range k.ReservedMemory {
		at := fmt.Sprintf("reservedMemory[%d].", i)
		if r.NumaNode < 0 {
			p.invalid(at+"numaNode", r.NumaNode, "must not be negative")
		}
		for name, q := range r.Limits {
			entry := keyed(at+"limits", string(name))
			_, huge := quantity.PageSize(name)
			switch {
			case name != v1.ResourceMemory && !huge:
				p.choose(entry, string(name), "memory", "hugepages-<size>")
			case q.Sign() <= 0:
				p.invalid(entry, q.String(), "must be more than 0")
			case seen[key{r.NumaNode, name}]:
				p.duplicate(entry, name)
			}
			seen[key{r.NumaNode, name}] = true
		}
	}
	if f := k.MemoryThrottlingFactor; f != nil && !(*f > 0 && *f <= 1) {
		p.invalid("memoryThrottlingFactor", *f, "must be more than 0, at most 1")
	}
	qos := c.Gates.Enabled("MemoryQoS")
	const once = 0.9 // an earlier default, which files may still contain
	p.forbid(k.MemoryThrottlingFactor != nil && *k.MemoryThrottlingFactor != once && !qos,
		"memoryThrottlingFactor", "needs feature gate MemoryQoS")
	p.forbid(k.MemoryReservationPolicy == kubeletv1beta1.TieredReservationMemoryReservationPolicy &&
		!qos, "memoryReservationPolicy", "TieredReservation needs feature gate MemoryQoS")
}
