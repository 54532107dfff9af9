package main

import (
	"cmp"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/numalet/numalet/cmd/numalet-lab/sim"
	"github.com/numalet/numalet/topology"

	"github.com/numalet/numalet/cmd/internal/cli"
)

// simFlags holds the flags of "numalet plugin sim" that describe the devices.
type simFlags struct {
	devices  int
	nodes    string
	layout   string
	prefix   string
	topology string
	pciClass string
}

func newPluginSimCommand() *cobra.Command {
	var cfg sim.Config
	var flags simFlags
	cmd := &cobra.Command{
		Use:   "sim",
		Short: cli.LabShort["plugin sim"],
		Long: `Run a device plugin with invented devices, in a process of its own as any plugin is.
It registers with the kubelet or numalet that serves the device plugin directory, and again
whenever that is restarted. With --control it takes orders, see "numalet plugin sim ctl".`,
		Example: `  numalet plugin sim --resource example.com/gpu --devices 8 --nodes 0-3
  numalet plugin sim --resource example.com/nic --topology-from machine.yaml --pci-class 02`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			devices, err := flags.make(cfg.Resource)
			if err != nil {
				return err
			}
			if err := pluginDir(cfg); err != nil {
				return err
			}
			cfg.Devices, cfg.Out = devices, cmd.OutOrStdout()
			plugin, err := sim.New(cfg)
			if err != nil {
				return err
			}
			return plugin.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Resource, "resource", "example.com/gpu",
		"extended resource that the plugin offers")
	f.StringVar(&cfg.Dir, "dir", "/var/lib/kubelet/device-plugins",
		"device plugin directory of the kubelet")
	f.StringVar(&cfg.RegistryDir, "registry-dir", "",
		"register by a socket in this directory, the kubelet's plugins_registry, instead of in "+
			"--dir")
	f.StringVar(&cfg.Socket, "socket", "",
		"name of the plugin's socket in its directory (made from the resource)")
	f.StringVar(&cfg.Control, "control", "", "path of a unix socket on which to take orders (none)")
	f.StringArrayVar(&cfg.Answer.DevicePaths, "device-path", nil,
		"device node for containers, host[:container[:permissions]]; repeatable")
	f.StringArrayVar(&cfg.Answer.Mounts, "mount", nil,
		"mount for containers, host:container[:ro]; repeatable")
	f.StringToStringVar(&cfg.Answer.Annotations, "annotation", nil,
		"annotation for containers, key=value; repeatable")
	f.StringVar(&cfg.Answer.CDIKind, "cdi-kind", "",
		"name devices for CDI too, as KIND=ID (vendor.example/gpu)")
	f.BoolVar(&cfg.NoPreferred, "no-preferred", false, "do not offer GetPreferredAllocation")
	f.BoolVar(&cfg.PreStart, "pre-start", false, "ask for PreStartContainer before each start")
	f.BoolVar(&cfg.Released, "released", false,
		"be told which devices nobody has any more (numalet.deviceplugin.v1.Lifecycle)")
	flags.add(f)
	cmd.AddCommand(newPluginCtlCommand())
	return cmd
}

func (f *simFlags) add(flags *pflag.FlagSet) {
	flags.IntVar(&f.devices, "devices", 8, "how many devices")
	flags.StringVar(&f.nodes, "nodes", "",
		`NUMA nodes of the devices, like "0-3" (devices without a node)`)
	flags.StringVar(&f.layout, "layout", string(sim.Blocked),
		"blocked: neighbours share a node; round-robin: neighbours are on different nodes")
	flags.StringVar(&f.prefix, "id-prefix", "",
		"device ids are PREFIX-0, PREFIX-1, ... (made from the resource)")
	flags.StringVar(&f.topology, "topology-from", "",
		"make a device of each PCI function of --pci-class on this machine: "+
			"a snapshot, a YAML file or a fixture's name")
	flags.StringVar(&f.pciClass, "pci-class", "03",
		"PCI class for --topology-from: 0302 is a GPU, 02 any NIC")
}

// make invents the devices, or derives them from a machine.
func (f simFlags) make(resource string) ([]sim.Device, error) {
	prefix := cmp.Or(f.prefix, sim.Kind(resource))
	if f.topology != "" {
		machine, err := cli.OpenMachine(f.topology)
		if err != nil {
			return nil, err
		}
		return sim.FromMachine(machine, f.pciClass, prefix)
	}
	if f.devices < 0 {
		return nil, fmt.Errorf("--devices %d: the number is negative", f.devices)
	}
	nodes, err := topology.ParseNodeSet(f.nodes)
	if err != nil {
		return nil, badNodes(f.nodes)
	}
	return sim.Spread(prefix, f.devices, nodes, sim.Layout(f.layout))
}

// pluginDir checks that the directory exists. The agent that serves it creates it, so a plugin that
// waits in another directory would wait in vain.
func pluginDir(cfg sim.Config) error {
	flag, dir := "dir", cfg.Dir
	if cfg.RegistryDir != "" {
		flag, dir = "registry-dir", cfg.RegistryDir
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return fmt.Errorf("--%s %s: there is no such directory: start the kubelet or numalet, "+
			"which makes it, or name the one of theirs", flag, dir)
	}
	return nil
}

// badNodes returns an error that says what --nodes takes.
func badNodes(text string) error {
	return fmt.Errorf("--nodes %s: not a list of NUMA nodes, such as 0-3 or 0,2", text)
}
