package bench

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/cmd/numalet-lab/rig"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
)

// read returns the policies of the words, followed by those of the files.
func (p Policies) read(m *topology.Machine) ([]rig.Policy, error) {
	var out []rig.Policy
	if p.Words != "" {
		var err error
		if out, err = rig.ParsePolicies(p.Words); err != nil {
			return nil, err
		}
	}
	files, err := nodeConfigs(p.Configs, p.ConfigDirs)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		policy, err := f.policy(m)
		if err != nil {
			return nil, fmt.Errorf("policy %s: %w", f.name, err)
		}
		out = append(out, policy)
	}
	return out, rig.CheckPolicies(out)
}

// nodeConfig says where a node's configuration comes from: a file, a directory of drop-ins, or
// both.
type nodeConfig struct{ name, file, dir string }

// nodeConfigs joins files and directories that have the same name, in the order of the flags.
func nodeConfigs(files, dirs []string) (out []nodeConfig, err error) {
	for _, text := range files {
		name, file, named := strings.Cut(text, "=")
		if !named {
			file = text
			name = strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		}
		if name == "" || file == "" {
			return nil, fmt.Errorf("--config %q: write NAME=FILE, like "+
				"today=/var/lib/kubelet/config.yaml", text)
		}
		out = append(out, nodeConfig{name: name, file: file})
	}
	for _, text := range dirs {
		name, dir, _ := strings.Cut(text, "=")
		if name == "" || dir == "" {
			return nil, fmt.Errorf("--config-dir %q: write NAME=DIR; the drop-ins of DIR come on "+
				"top of the --config of this name", text)
		}
		at := slices.IndexFunc(out, func(c nodeConfig) bool { return c.name == name })
		if at < 0 {
			at = len(out)
			out = append(out, nodeConfig{name: name})
		}
		if out[at].dir != "" {
			return nil, fmt.Errorf("--config-dir %q: %s has %s already; put the drop-ins into one "+
				"directory", text, name, out[at].dir)
		}
		out[at].dir = dir
	}
	return out, nil
}

// policy reads the configuration as the agent does, and works out what it means on the machine.
func (c nodeConfig) policy(m *topology.Machine) (rig.Policy, error) {
	var args, from []string
	for _, given := range []struct{ flag, path string }{{"config", c.file}, {"config-dir", c.dir}} {
		if given.path != "" {
			args, from = append(args, "--"+given.flag+"="+given.path), append(from, given.path)
		}
	}
	cfg, err := config.FromArgs(args)
	if err != nil {
		return rig.Policy{}, err
	}
	p, err := policyOf(cfg, m)
	p.Name, p.From = c.name, strings.Join(from, " and ")
	return p, err
}

// policyOf returns the policy by which an agent with this configuration would decide.
func policyOf(cfg *config.Config, m *topology.Machine) (rig.Policy, error) {
	hardware, err := machine.Of(cfg, m)
	if err != nil {
		return rig.Policy{}, err
	}
	k := &cfg.Kubelet
	kept := rig.Kept{
		Allocatable: hardware.Allocatable, ReservedMemory: memory.Reserved(k.ReservedMemory),
	}
	p := rig.Policy{
		SharedCPUs: hardware.CPUs == nil, PlacedMemory: hardware.Memory != nil, Kept: &kept,
	}
	if p.Rules, err = cfg.Rules(); err != nil {
		return p, err
	}
	p.Rules.Choices = nil // as in policies of words
	if text, ok := k.TopologyManagerPolicyOptions["prefer-closest-numa-nodes"]; ok {
		if p.Closest, err = strconv.ParseBool(text); err != nil {
			return p, err
		}
	}
	if kept.ReservedCPUs, err = topology.ParseCPUs(k.ReservedSystemCPUs); err != nil {
		return p, err
	}
	if hardware.CPUs == nil {
		return p, nil
	}
	kept.IsolatedCPUs = hardware.CPUs.Isolated()
	if k.ReservedSystemCPUs == "" {
		kept.ReservedCPUs = hardware.CPUs.Reserved()
	}
	p.CPUOptions, err = cpumanager.ParseOptions(k.CPUManagerPolicyOptions)
	return p, err
}
