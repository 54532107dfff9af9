package cpumanager

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Names of the static policy's options, keys of cpuManagerPolicyOptions.
const (
	OptionFullPCPUsOnly             = "full-pcpus-only"
	OptionStrictReservation         = "strict-cpu-reservation"
	OptionPreferAlignByUncoreCache  = "prefer-align-cpus-by-uncorecache"
	OptionDistributeCPUsAcrossNUMA  = "distribute-cpus-across-numa"
	OptionAlignBySocket             = "align-by-socket"
	OptionDistributeCPUsAcrossCores = "distribute-cpus-across-cores"
)

// Options change the static policy, as doc.go describes. The configuration checks which options
// exclude each other and which need a feature gate.
type Options struct {
	// FullPCPUsOnly only assigns whole cores (KEP-2625).
	FullPCPUsOnly bool
	// StrictReservation keeps the reserved CPUs out of the shared pool (KEP-4540).
	StrictReservation bool
	// PreferAlignByUncoreCache uses few last-level caches, before any other unit smaller than a
	// node (KEP-4800).
	PreferAlignByUncoreCache bool
	// DistributeAcrossNUMA takes equal numbers of CPUs from several nodes (KEP-2902).
	DistributeAcrossNUMA bool
	// AlignBySocket prefers nodes of one socket over few nodes (KEP-3327).
	AlignBySocket bool
	// DistributeAcrossCores takes threads of many cores instead of many threads of few (KEP-4176).
	DistributeAcrossCores bool
}

// fields returns the options by name.
func (o *Options) fields() map[string]*bool {
	return map[string]*bool{
		OptionFullPCPUsOnly:             &o.FullPCPUsOnly,
		OptionStrictReservation:         &o.StrictReservation,
		OptionPreferAlignByUncoreCache:  &o.PreferAlignByUncoreCache,
		OptionDistributeCPUsAcrossNUMA:  &o.DistributeAcrossNUMA,
		OptionAlignBySocket:             &o.AlignBySocket,
		OptionDistributeCPUsAcrossCores: &o.DistributeAcrossCores,
	}
}

// OptionNames lists all options.
func OptionNames() []string { return slices.Sorted(maps.Keys(new(Options).fields())) }

// Names lists the enabled options.
func (o Options) Names() (on []string) {
	for name, is := range o.fields() {
		if *is {
			on = append(on, name)
		}
	}
	slices.Sort(on)
	return on
}

// ParseOptions reads cpuManagerPolicyOptions: names of options with "true" or "false".
func ParseOptions(given map[string]string) (Options, error) {
	var o Options
	fields := o.fields()
	for _, name := range slices.Sorted(maps.Keys(given)) {
		field, known := fields[name]
		if !known {
			return Options{}, fmt.Errorf("CPU manager option %q is not known; known are %q",
				name, OptionNames())
		}
		on, err := strconv.ParseBool(given[name])
		if err != nil {
			return Options{}, fmt.Errorf("CPU manager option %s: %q is neither true nor false",
				name, given[name])
		}
		*field = on
	}
	return o, nil
}
