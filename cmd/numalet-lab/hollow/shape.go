package hollow

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/numalet/numalet/agent"
	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

// MaxNodes bounds the nodes of one process, so that each has its own address.
const MaxNodes = 10000

// Machines describes some nodes of one shape.
type Machines struct {
	// From is a value for the agent's --topology-from: fixture:NAME, a machine file, a snapshot.
	From  string
	Count int
}

// ParseMachines parses "fixture:epyc-nps4=400"; the count defaults to one.
func ParseMachines(text string) (Machines, error) {
	m := Machines{From: text, Count: 1}
	if at := strings.LastIndex(text, "="); at >= 0 {
		n, err := strconv.Atoi(text[at+1:])
		if err != nil || n < 1 || n > MaxNodes {
			return m, fmt.Errorf("machine %q: %q is no number from 1 to %d; write "+
				"fixture:epyc-nps4=400", text, text[at+1:], MaxNodes)
		}
		m.From, m.Count = text[:at], n
	}
	if m.From == "" {
		return m, fmt.Errorf("machine %q: no machine is named; write fixture:epyc-nps4=400 or "+
			"machine.yaml=400", text)
	}
	return m, nil
}

// ParseInvented parses "example.com/gpu=8".
func ParseInvented(text string) (Invented, error) {
	name, count, _ := strings.Cut(text, "=")
	n, err := strconv.Atoi(count)
	domain, kind, _ := strings.Cut(name, "/")
	if err != nil || n < 1 || n > maxDevices || domain == "" || kind == "" {
		return Invented{}, fmt.Errorf("device %q: write RESOURCE=COUNT with 1 to %d devices, as "+
			"example.com/gpu=8", text, maxDevices)
	}
	return Invented{name, n}, nil
}

// shape is shared by the nodes of the same machine. It is immutable.
type shape struct {
	agent.HollowKind
	cfg     *config.Config
	devices devices
	claimed devicemanager.Inventory // what ResourceSlices have
}

// settingsDir is the directory, below the root directory, of the drop-in with the nodes' settings.
const settingsDir = "nodes.d"

// write writes the nodes' settings, and returns the flags of an agent that reads them.
func (c Config) write() ([]string, error) {
	settings := map[string]any{}
	maps.Copy(settings, c.Settings)
	maps.Copy(settings, map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		// Nothing serves this endpoint, and nothing connects to it.
		"containerRuntimeEndpoint": "unix:///nonexistent", "cgroupsPerQOS": false,
		"enforceNodeAllocatable": []string{"none"}, "failSwapOn": false,
	})
	text, err := yaml.Marshal(settings)
	if err != nil {
		return nil, fmt.Errorf("settings of the nodes: %w", err)
	}
	dir := filepath.Join(c.Root, settingsDir)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("make directory: %w; give a writable one with --root-dir", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "nodes.conf"), text, 0o640); err != nil {
		return nil, fmt.Errorf("write the settings of the nodes: %w", err)
	}
	args := []string{"--root-dir=" + c.Root, "--config-dir=" + dir, "--kubeconfig=" + c.Kubeconfig}
	if c.File != "" {
		args = append(args, "--config="+c.File)
	}
	return args, nil
}

// name returns the part of nodes' names that comes from the machine's fixture or file.
func (m Machines) name() string {
	name := filepath.Base(strings.TrimPrefix(m.From, "fixture:"))
	name, _, _ = strings.Cut(name, ".")
	return strings.ToLower(name)
}

// newShape reads a machine under the configuration of an agent with these flags.
func newShape(c Config, args []string, from string) (*shape, error) {
	cfg, err := config.FromArgs(append(args[:len(args):len(args)], "--topology-from="+from))
	if err != nil {
		return nil, err
	}
	s := &shape{cfg: cfg}
	cfg.Node.Labels = c.Labels
	k := &cfg.Kubelet
	k.RegisterWithTaints = append(k.RegisterWithTaints, c.Taints...)
	// These name one node, or its host.
	k.StaticPodPath, k.StaticPodURL, k.ProviderID, k.PodLogsDir = "", "", "", ""
	if s.HollowKind, err = agent.NewHollowKind(cfg); err != nil {
		return nil, fmt.Errorf("machine %s: %w", from, err)
	}
	inventory, err := offer(s.Machine(), c.Devices)
	if c.Claims && err == nil {
		s.claimed, err = inventory, checkSlices(inventory)
		inventory = devicemanager.Inventory{Version: 1}
	}
	s.devices = devices{inventory}
	return s, err
}
