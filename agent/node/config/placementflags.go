package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/deviceplugin/dra/places"
	"github.com/numalet/numalet/internal/oneline"
	"github.com/numalet/numalet/topology"
)

// Placement says what pods may choose for their placement, and how to choose among equally good
// nodes.
type Placement struct {
	// Strategy is a NUMA allocation strategy.
	Strategy string
	// Policies lists the topology manager policies that a pod may choose; nil: the node's own and
	// stricter ones.
	Policies []string
	// IsolatedCPUs are kept for pods that ask for them: none, auto (those that the kernel isolates) or
	// a list.
	IsolatedCPUs string
	// DriverCPUs are those that drivers of resource claims hand out: a list, or "" for none.
	DriverCPUs string
	// CPUDriver: the agent is itself a driver of CPUs.
	CPUDriver bool
	// Choosers are the schedulers whose pods' annotations choose devices.
	Choosers []string
	// ClaimAttributes give attributes of resource claims' devices a meaning, see places.ParseTable.
	ClaimAttributes []string
}

const (
	strategyFlag    = "numa-allocation"
	podPoliciesFlag = "pod-topology-policies"
	isolatedFlag    = "isolated-cpus"
	choosersFlag    = "devices-chosen-by"
	driverCPUsFlag  = "dra-cpus"
	attributesFlag  = "claim-attributes"
	cpuDriverFlag   = "dra-cpu"
)

// Values of the flag for isolated CPUs that are not lists.
const (
	isolatedNone = "none"
	isolatedAuto = "auto"
)

func (p *Placement) add(fs *pflag.FlagSet) {
	fs.StringVar(&p.Strategy, strategyFlag, string(topology.LowestNodes),
		"which of equally good NUMA nodes a pod gets: lowest (those with the lowest ids, as the "+
			"kubelet), packed (with the least left) or spread (with the most left)")
	fs.StringSliceVar(&p.Policies, podPoliciesFlag, nil,
		"topology manager policies that a pod may choose by an annotation, with commas; without "+
			"the flag the node's own and the stricter ones")
	fs.StringVar(&p.IsolatedCPUs, isolatedFlag, isolatedNone,
		"CPUs that only pods get that ask for them by an annotation: auto (those of isolcpus=), a "+
			"list like 2-7, or none (all CPUs are alike, as with the kubelet)")
	fs.StringVar(&p.DriverCPUs, driverCPUsFlag, "",
		"CPUs that drivers of resource claims hand out, a list like 8-15: no container shares them or "+
			"gets them by its requests, and drivers may hand out no others; with the static CPU policy "+
			"only (under the policy none drivers may hand out all)")
	fs.BoolVar(&p.CPUDriver, cpuDriverFlag, false,
		"be the driver dra.cpu of resource claims: pods get exclusive CPUs by claims, from the pool from "+
			"which others get them by their requests; with the static CPU policy only")
	fs.StringSliceVar(&p.Choosers, choosersFlag, nil,
		"schedulers that choose devices: of pods with that spec.schedulerName the annotation "+
			"RESOURCE_container-CONTAINER lists the ids that the container gets; with commas, each "+
			"SCHEDULER or NAMESPACE/SCHEDULER; without the flag such annotations mean nothing")
	fs.StringSliceVar(&p.ClaimAttributes, attributesFlag, nil,
		"which attributes of a driver say where the devices of resource claims are, beside the known "+
			"ones and instead of them: DOMAIN/NAME=MEANING with commas, with a meaning of node, nodes, "+
			"pciAddress, pcieRoot, uuid, parentUUID or ignored")
}

// ParseIsolated parses --isolated-cpus; named is false if the kernel determines the CPUs.
func ParseIsolated(text string) (cpus cpuset.CPUSet, named bool, err error) {
	switch text {
	case "", isolatedNone:
		return cpus, true, nil
	case isolatedAuto:
		return cpus, false, nil
	}
	if cpus, err = parseCPUs(text); err != nil {
		err = fmt.Errorf("%q: write %s, %s or a list like 2-7,18-23: %w", text, isolatedNone,
			isolatedAuto, err)
	}
	return cpus, true, err
}

// ParseDriverCPUs parses --dra-cpus.
func ParseDriverCPUs(text string) (cpuset.CPUSet, error) {
	if text == "" {
		return cpuset.New(), nil
	}
	cpus, err := parseCPUs(text)
	if err != nil {
		err = fmt.Errorf("%q: write a list like 8-15: %w", text, err)
	}
	return cpus, err
}

// maxCPUDigits bounds the ids of CPUs, since all members of a range are stored.
const maxCPUDigits = 5

func parseCPUs(text string) (cpus cpuset.CPUSet, err error) {
	for id := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == '-' }) {
		if len(strings.TrimSpace(id)) > maxCPUDigits {
			return cpus, fmt.Errorf("no machine has a CPU %s", oneline.Cut(id, 64))
		}
	}
	cpus, err = topology.ParseCPUs(text)
	if err == nil && cpus.IsEmpty() {
		err = errors.New("no CPUs")
	}
	return cpus, err
}

// check reports flags with invalid values.
func (p *Placement) check(to *problems) {
	if _, err := topology.ParseStrategy(p.Strategy); err != nil {
		to.invalid("--"+strategyFlag, p.Strategy, "%v", err)
	}
	if _, _, err := ParseIsolated(p.IsolatedCPUs); err != nil {
		to.invalid("--"+isolatedFlag, p.IsolatedCPUs, "%v", err)
	}
	if _, err := ParseDriverCPUs(p.DriverCPUs); err != nil {
		to.invalid("--"+driverCPUsFlag, p.DriverCPUs, "%v", err)
	}
	for _, name := range p.Choosers {
		if _, err := topology.ParseChooser(name); err != nil {
			to.invalid("--"+choosersFlag, name, "%v", err)
		}
	}
	if _, err := places.ParseTable(p.ClaimAttributes); err != nil {
		to.invalid("--"+attributesFlag, strings.Join(p.ClaimAttributes, ","), "%v", err)
	}
	for _, name := range p.Policies {
		if _, err := topology.ParsePolicy(name); err != nil || name == "" {
			to.choose("--"+podPoliciesFlag, name, string(topology.None),
				string(topology.BestEffort), string(topology.Restricted),
				string(topology.SingleNUMANode))
		}
	}
}

// Attributes says what attributes of claims' devices mean, in a configuration that was checked.
func (p *Placement) Attributes() places.Table {
	own, _ := places.ParseTable(p.ClaimAttributes)
	return places.Default().With(own)
}

// Rules returns the rules of pods' placement, from the topology manager's settings and the flags.
func (c *Config) Rules() (r topology.Rules, err error) {
	if r.Policy, err = topology.ParsePolicy(c.Kubelet.TopologyManagerPolicy); err != nil {
		return r, err
	}
	if r.Scope, err = topology.ParseScope(c.Kubelet.TopologyManagerScope); err != nil {
		return r, err
	}
	if r.Strategy, err = topology.ParseStrategy(c.Placement.Strategy); err != nil {
		return r, err
	}
	r.PodLevel = c.Enabled("PodLevelResourceManagers")
	for _, name := range c.Placement.Choosers {
		chooser, err := topology.ParseChooser(name)
		if err != nil {
			return r, err
		}
		r.Choosers = append(r.Choosers, chooser)
	}
	if c.Placement.Policies == nil {
		r.Choices = r.Policy.Strict()
	}
	for _, name := range slices.Sorted(slices.Values(c.Placement.Policies)) {
		r.Choices = append(r.Choices, topology.Policy(name))
	}
	return r, nil
}
