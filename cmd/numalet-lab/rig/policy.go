package rig

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
)

// Policy is one set of settings that decide where a pod goes.
type Policy struct {
	// Name is the policy's name in reports.
	Name string
	// Rules have no Choices: pods may not ask for another policy.
	Rules topology.Rules
	// Closest is the option prefer-closest-numa-nodes.
	Closest bool
	// SharedCPUs is CPU manager policy none: no container gets exclusive CPUs. Otherwise it is static.
	SharedCPUs bool
	// PlacedMemory is memory manager policy Static: memory and huge pages of Guaranteed pods come from
	// certain nodes. Otherwise they are only counted.
	PlacedMemory bool
	CPUOptions   cpumanager.Options
	// Kept is reserved from pods by the policy; nil: as the site reserves.
	Kept *Kept
	// From is the file that the policy was read from, if any.
	From string
}

// DefaultPolicies compares the four policies of the topology manager.
const DefaultPolicies = "none/best-effort/restricted/single-numa-node"

// maxPolicies bounds a comparison: a report of more could not be read.
const maxPolicies = 64

// ParsePolicies reads sets of policies, separated by commas. A set consists of words joined by "+":
//
//	none, best-effort, restricted, single-numa-node    topology manager policy
//	container, pod                                     its scope
//	lowest, packed, spread                             NUMA allocation strategy
//	prefer-closest-numa-nodes                          its option
//	cpu-static, cpu-none                               CPU manager policy
//	memory-static, memory-none                         memory manager policy
//	devices-near, devices-by-id                        whether a container's devices are close together
//	pools                                              the gate PodLevelResourceManagers
//	full-pcpus-only, ...                               options of the CPU manager
//
// Words joined by "/" are alternatives: "restricted/none+pod/container" is four sets. A set may
// begin with a name of its own: "strict=single-numa-node+pod".
func ParsePolicies(text string) ([]Policy, error) {
	var out []Policy
	for entry := range strings.SplitSeq(text, ",") {
		label, spec, named := strings.Cut(strings.TrimSpace(entry), "=")
		if !named {
			label, spec = "", label
		}
		sets := [][]string{nil}
		for group := range strings.SplitSeq(spec, "+") {
			var next [][]string
			for _, set := range sets {
				for word := range strings.SplitSeq(group, "/") {
					next = append(next, append(slices.Clone(set), strings.TrimSpace(word)))
				}
			}
			if sets = next; len(sets) > maxPolicies {
				return nil, fmt.Errorf("policies %q: more than %d sets", entry, maxPolicies)
			}
		}
		for i, words := range sets {
			p, err := parsePolicy(words)
			if err != nil {
				return nil, fmt.Errorf("policies %q: %w", entry, err)
			}
			if p.Name = strings.Join(words, "+"); label != "" {
				p.Name = label
				if len(sets) > 1 {
					p.Name += "-" + strconv.Itoa(i+1)
				}
			}
			out = append(out, p)
		}
	}
	return out, CheckPolicies(out)
}

// CheckPolicies refuses too many sets, and sets of the same name.
func CheckPolicies(policies []Policy) error {
	if len(policies) > maxPolicies {
		return fmt.Errorf("policies: more than %d sets", maxPolicies)
	}
	seen := map[string]bool{}
	for _, p := range policies {
		if seen[p.Name] {
			return fmt.Errorf("policies: %q is there twice", p.Name)
		}
		seen[p.Name] = true
	}
	return nil
}

func parsePolicy(words []string) (Policy, error) {
	p := Policy{Rules: topology.Rules{Policy: topology.None, Scope: topology.ContainerScope}}
	options, used := map[string]string{}, map[string]string{}
	for _, word := range words {
		kind := p.read(word, options)
		if kind == "" {
			return p, fmt.Errorf("%q is not a word of a policy; the words are %s", word,
				strings.Join(PolicyWords(), ", "))
		}
		if other, twice := used[kind]; twice {
			return p, fmt.Errorf("%q and %q say the same thing twice; alternatives are joined by /",
				other, word)
		}
		used[kind] = word
	}
	if p.SharedCPUs && len(options) > 0 {
		return p, fmt.Errorf("cpu-none has no options")
	}
	err := config.CheckCPUOptions(slices.Collect(maps.Keys(options)), string(p.Rules.Policy))
	if err != nil {
		return p, err
	}
	p.CPUOptions, err = cpumanager.ParseOptions(options)
	return p, err
}

// read applies one word and returns the setting that it concerns; "" if the word is unknown.
func (p *Policy) read(word string, options map[string]string) (about string) {
	switch word {
	case "":
		return ""
	case "prefer-closest-numa-nodes":
		p.Closest = true
		return word
	case "cpu-static", "cpu-none":
		p.SharedCPUs = word == "cpu-none"
		return "cpu"
	case "memory-static", "memory-none":
		p.PlacedMemory = word == "memory-static"
		return "memory"
	case "devices-near", "devices-by-id":
		p.Rules.DevicesByID = word == "devices-by-id"
		return "devices"
	case "pools":
		p.Rules.PodLevel = true
		return word
	}
	if policy, err := topology.ParsePolicy(word); err == nil {
		p.Rules.Policy = policy
		return "topology"
	}
	if scope, err := topology.ParseScope(word); err == nil {
		p.Rules.Scope = scope
		return "scope"
	}
	if strategy, err := topology.ParseStrategy(word); err == nil {
		p.Rules.Strategy = strategy
		return "strategy"
	}
	if slices.Contains(cpumanager.OptionNames(), word) {
		options[word] = "true"
		return word
	}
	return ""
}

// PolicyWords returns the words that a set of policies can consist of.
func PolicyWords() []string {
	return append([]string{
		string(topology.None), string(topology.BestEffort), string(topology.Restricted),
		string(topology.SingleNUMANode), string(topology.ContainerScope), string(topology.PodScope),
		string(topology.LowestNodes), string(topology.Packed), string(topology.Spread),
		"prefer-closest-numa-nodes", "cpu-static", "cpu-none", "memory-static", "memory-none",
		"devices-near", "devices-by-id", "pools",
	}, cpumanager.OptionNames()...)
}
