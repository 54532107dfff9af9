package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-base/featuregate"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/cpumanager"
)

// cpuOption is a policy option of the CPU manager: the gate it needs (empty: none) and the
// options that it cannot stand with.
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

func validateCPUManager(c *Config) field.ErrorList {
	k := &c.Kubelet
	errs := validateCPUOptions(c)
	if k.CPUManagerPolicy != "static" || k.ReservedSystemCPUs != "" {
		return errs
	}
	var milli int64
	for _, reserved := range []map[string]string{k.KubeReserved, k.SystemReserved} {
		if list, err := ParseReserved(reserved); err == nil {
			milli += list.Cpu().MilliValue()
		}
	}
	if milli == 0 {
		errs = append(errs, invalid("cpuManagerPolicy", k.CPUManagerPolicy,
			"the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than "+
				"zero; set kubeReserved.cpu, systemReserved.cpu or reservedSystemCPUs "+
				"(--reserved-cpus)"))
	}
	return errs
}

func validateCPUOptions(c *Config) field.ErrorList {
	k := &c.Kubelet
	at := field.NewPath("cpuManagerPolicyOptions")
	known := cpuOptions()
	var errs field.ErrorList
	if len(k.CPUManagerPolicyOptions) > 0 && k.CPUManagerPolicy == "none" {
		errs = append(errs, field.Forbidden(at, "policy none takes no options"))
	}
	on := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(k.CPUManagerPolicyOptions)) {
		option, ok := known[name]
		value, err := strconv.ParseBool(k.CPUManagerPolicyOptions[name])
		switch {
		case !ok:
			errs = append(errs, field.NotSupported(at.Child(name), name,
				slices.Sorted(maps.Keys(known))))
		case err != nil:
			errs = append(errs, field.Invalid(at.Child(name), k.CPUManagerPolicyOptions[name],
				"must be true or false"))
		case option.gate != "" && !c.Gates.Enabled(option.gate):
			errs = append(errs, field.Forbidden(at.Child(name),
				"needs feature gate "+string(option.gate)))
		default:
			on[name] = value
		}
	}
	return append(errs, cpuConflicts(on, k.TopologyManagerPolicy)...)
}

// cpuConflicts lists the options that are on and cannot stand with each other, or with the policy
// of the topology manager.
func cpuConflicts(on map[string]bool, topologyPolicy string) (errs field.ErrorList) {
	at, known := field.NewPath("cpuManagerPolicyOptions"), cpuOptions()
	for _, name := range slices.Sorted(maps.Keys(on)) {
		for _, other := range known[name].excludes {
			if on[name] && on[other] {
				errs = append(errs, field.Forbidden(at.Child(name), "cannot be used with "+other))
			}
		}
	}
	if on[cpumanager.OptionAlignBySocket] &&
		topologyPolicy == kubeletv1beta1.SingleNumaNodeTopologyManagerPolicy {
		errs = append(errs, field.Forbidden(at.Child(cpumanager.OptionAlignBySocket),
			"cannot be used with topologyManagerPolicy single-numa-node"))
	}
	return errs
}

// CheckCPUOptions refuses options of the CPU manager that cannot stand with each other or with the
// policy of the topology manager, as Load does. Feature gates are not asked.
func CheckCPUOptions(options []string, topologyPolicy string) error {
	on := map[string]bool{}
	for _, name := range options {
		on[name] = true
	}
	return inOneLine(cpuConflicts(on, topologyPolicy))
}

func validateTopology(c *Config) field.ErrorList {
	k := &c.Kubelet
	at := field.NewPath("topologyManagerPolicyOptions")
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(k.TopologyManagerPolicyOptions)) {
		value := k.TopologyManagerPolicyOptions[name]
		switch name {
		case "prefer-closest-numa-nodes":
			if _, err := strconv.ParseBool(value); err != nil {
				errs = append(errs, field.Invalid(at.Child(name), value, "must be true or false"))
			}
		case "max-allowable-numa-nodes":
			if n, err := strconv.Atoi(value); err != nil || n < 8 {
				errs = append(errs, field.Invalid(at.Child(name), value,
					"must be a number, at least 8"))
			}
		default:
			errs = append(errs, field.NotSupported(at.Child(name), name,
				[]string{"max-allowable-numa-nodes", "prefer-closest-numa-nodes"}))
		}
	}
	return errs
}

func validateMemory(c *Config) field.ErrorList {
	k := &c.Kubelet
	at := field.NewPath("reservedMemory")
	var errs field.ErrorList
	if k.MemoryManagerPolicy == kubeletv1beta1.StaticMemoryManagerPolicy &&
		len(k.ReservedMemory) == 0 {
		errs = append(errs, field.Required(at, "memoryManagerPolicy Static needs it: "+
			"kubeReserved, systemReserved and evictionHard memory, such as "+
			"{numaNode: 0, limits: {memory: 1Gi}}"))
	}
	type key struct {
		node int32
		name v1.ResourceName
	}
	seen := map[key]bool{}
	for i, r := range k.ReservedMemory {
		if r.NumaNode < 0 {
			errs = append(errs, field.Invalid(at.Index(i).Child("numaNode"), r.NumaNode,
				"must not be negative"))
		}
		for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
			q, entry := r.Limits[name], at.Index(i).Child("limits").Key(string(name))
			switch {
			case name != v1.ResourceMemory && !isHugePages(name):
				errs = append(errs, field.NotSupported(entry, name,
					[]string{"memory", "hugepages-<size>"}))
			case q.Sign() <= 0:
				errs = append(errs, field.Invalid(entry, q.String(), "must be more than 0"))
			case seen[key{r.NumaNode, name}]:
				errs = append(errs, field.Duplicate(entry, name))
			}
			seen[key{r.NumaNode, name}] = true
		}
	}
	if f := k.MemoryThrottlingFactor; f != nil && !(*f > 0 && *f <= 1) {
		errs = append(errs, invalid("memoryThrottlingFactor", *f, "must be more than 0, at most 1"))
	}
	if len(k.QOSReserved) > 0 && !c.Gates.Enabled("QOSReserved") {
		errs = append(errs, forbidden("qosReserved", "needs feature gate QOSReserved"))
	}
	return errs
}

func isHugePages(name v1.ResourceName) bool {
	size, huge := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
	return huge && size != ""
}
