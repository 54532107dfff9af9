package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/numalet/numalet/deviceplugin/sim"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/discover"
)

func newPluginCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plugin",
		Short: "Device plugins of our own, for numalet and for the stock kubelet",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(newPluginSimCommand())
	return cmd
}

// simFlags are the flags of plugin sim from which the devices are made.
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
		Short: "Run a device plugin with invented devices",
		Long: `Run a device plugin with invented devices, in a process of its own as any plugin is.
It registers with the kubelet or numalet that serves the device plugin directory, and again
whenever that is restarted. With --control it takes orders, see "numalet plugin sim ctl".`,
		Example: `  numalet plugin sim --resource example.com/gpu --devices 8 --nodes 0-3 --dir /var/lib/kubelet/device-plugins
  numalet plugin sim --resource example.com/nic --topology-from machine.yaml --pci-class 02 --dir DIR`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			devices, err := flags.make(cfg.Resource)
			if err != nil {
				return err
			}
			cfg.Devices, cfg.Out = devices, cmd.OutOrStdout()
			plugin, err := sim.New(cfg)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			return plugin.Run(ctx)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Resource, "resource", "example.com/gpu", "extended resource that the plugin offers")
	f.StringVar(&cfg.Dir, "dir", "/var/lib/kubelet/device-plugins", "device plugin directory of the kubelet")
	f.StringVar(&cfg.Socket, "socket", "", "name of the plugin's socket in --dir (made from the resource)")
	f.StringVar(&cfg.Control, "control", "", "path of a unix socket on which to take orders (none)")
	f.IntVar(&flags.devices, "devices", 8, "how many devices")
	f.StringVar(&flags.nodes, "nodes", "", `NUMA nodes of the devices, like "0-3" (devices without a node)`)
	f.StringVar(&flags.layout, "layout", string(sim.Blocked),
		"blocked: neighbours share a node; round-robin: neighbours are on different nodes")
	f.StringVar(&flags.prefix, "id-prefix", "", "device ids are PREFIX-0, PREFIX-1, ... (made from the resource)")
	f.StringVar(&flags.topology, "topology-from", "",
		"make a device of each PCI function of --pci-class on this machine: a snapshot, a YAML file or a fixture's name")
	f.StringVar(&flags.pciClass, "pci-class", "03", "PCI class for --topology-from: 0302 is a GPU, 02 any NIC")
	f.StringArrayVar(&cfg.Answer.DevicePaths, "device-path", nil,
		"device node for containers, host[:container[:permissions]]; repeatable")
	f.StringArrayVar(&cfg.Answer.Mounts, "mount", nil, "mount for containers, host:container[:ro]; repeatable")
	f.StringToStringVar(&cfg.Answer.Annotations, "annotation", nil, "annotation for containers, key=value; repeatable")
	f.StringVar(&cfg.Answer.CDIKind, "cdi-kind", "", "name devices for CDI too, as KIND=ID (vendor.example/gpu)")
	f.BoolVar(&cfg.NoPreferred, "no-preferred", false, "do not offer GetPreferredAllocation")
	f.BoolVar(&cfg.PreStart, "pre-start", false, "ask for PreStartContainer before each start")
	cmd.AddCommand(newPluginCtlCommand())
	return cmd
}

// make invents the devices, or derives them from a machine.
func (f simFlags) make(resource string) ([]sim.Device, error) {
	prefix := f.prefix
	if prefix == "" {
		prefix = sim.Kind(resource)
	}
	if f.topology != "" {
		machine, err := openMachine(f.topology)
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
		return nil, fmt.Errorf("--nodes: %w", err)
	}
	return sim.Spread(prefix, f.devices, nodes, sim.Layout(f.layout))
}

func openMachine(from string) (*topology.Machine, error) {
	if slices.Contains(discover.FixtureNames(), from) {
		return discover.Fixture(from)
	}
	return discover.Open(from)
}

// ctl is what the subcommands of plugin sim ctl share.
type ctl struct {
	control string
	timeout time.Duration
}

func newPluginCtlCommand() *cobra.Command {
	c := &ctl{}
	cmd := &cobra.Command{
		Use:          "ctl",
		Short:        "Give orders to a running plugin sim",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
	}
	cmd.PersistentFlags().StringVar(&c.control, "control", "", "the plugin's control socket")
	cmd.PersistentFlags().DurationVar(&c.timeout, "timeout", 10*time.Second, "how long to wait for the plugin")
	cmd.AddCommand(
		c.stateCommand(),
		c.verb("healthy ID...", "Make devices healthy", func(ctx context.Context, p *sim.Client, ids []string) error {
			return p.SetHealth(ctx, true, ids...)
		}),
		c.verb("unhealthy ID...", "Make devices unhealthy", func(ctx context.Context, p *sim.Client, ids []string) error {
			return p.SetHealth(ctx, false, ids...)
		}),
		c.verb("remove ID...", "Remove devices", func(ctx context.Context, p *sim.Client, ids []string) error {
			return p.Remove(ctx, ids...)
		}),
		c.addCommand(),
		c.faultCommand(),
		c.verb("clear", "End all misbehaviour", func(ctx context.Context, p *sim.Client, _ []string) error {
			return p.ClearFaults(ctx)
		}),
		c.verb("restart", "Close the socket, serve and register again", func(ctx context.Context, p *sim.Client, _ []string) error {
			return p.Restart(ctx)
		}),
		c.verb("crash", "Exit with status 1, sockets left behind", func(ctx context.Context, p *sim.Client, _ []string) error {
			return p.Crash(ctx)
		}),
	)
	return cmd
}

// verb makes a subcommand; one whose use has "ID..." wants arguments, others take none.
func (c *ctl) verb(use, short string, do func(context.Context, *sim.Client, []string) error) *cobra.Command {
	args := cobra.NoArgs
	if strings.Contains(use, "...") {
		args = cobra.MinimumNArgs(1)
	}
	return &cobra.Command{
		Use: use, Short: short, Args: args,
		RunE: func(cmd *cobra.Command, ids []string) error {
			return c.call(cmd.Context(), func(ctx context.Context, p *sim.Client) error { return do(ctx, p, ids) })
		},
	}
}

func (c *ctl) call(ctx context.Context, do func(context.Context, *sim.Client) error) error {
	if c.control == "" {
		return errors.New("--control is not given: name the socket that the plugin was started with")
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return do(ctx, sim.NewClient(c.control))
}

func (c *ctl) stateCommand() *cobra.Command {
	return &cobra.Command{
		Use: "state", Short: "Print devices, faults and counts of calls as JSON", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.call(cmd.Context(), func(ctx context.Context, p *sim.Client) error {
				state, err := p.State(ctx)
				if err != nil {
					return err
				}
				out := json.NewEncoder(cmd.OutOrStdout())
				out.SetIndent("", "  ")
				return out.Encode(state)
			})
		},
	}
}

func (c *ctl) addCommand() *cobra.Command {
	var nodes string
	cmd := c.verb("add ID...", "Add devices", func(ctx context.Context, p *sim.Client, ids []string) error {
		set, err := topology.ParseNodeSet(nodes)
		if err != nil {
			return fmt.Errorf("--nodes: %w", err)
		}
		var devices []sim.Device
		for _, id := range ids {
			devices = append(devices, sim.Device{ID: id, Healthy: true, Nodes: set.IDs()})
		}
		return p.Add(ctx, devices...)
	})
	cmd.Flags().StringVar(&nodes, "nodes", "", "NUMA nodes of each of the devices")
	return cmd
}

func (c *ctl) faultCommand() *cobra.Command {
	var fault sim.Fault
	cmd := &cobra.Command{
		Use: "fault RPC", Short: fmt.Sprintf("Make a call misbehave: one of %v", sim.RPCs()),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			fault.RPC = sim.RPC(args[0])
			return c.call(cmd.Context(), func(ctx context.Context, p *sim.Client) error {
				return p.Fault(ctx, fault)
			})
		},
	}
	f := cmd.Flags()
	f.DurationVar(&fault.Delay.Duration, "delay", 0, "wait before the call goes on, or fails")
	f.BoolVar(&fault.Hang, "hang", false, "do not answer until the fault is cleared")
	f.StringVar(&fault.Code, "code", "", "fail with this gRPC status code, like UNAVAILABLE")
	f.StringVar(&fault.Message, "message", "", "text of the failure")
	f.StringVar((*string)(&fault.Lie), "lie", "", "answer wrongly: foreign, few, empty, duplicate, nowhere")
	f.IntVar(&fault.Count, "count", 0, "how many calls misbehave (all)")
	return cmd
}
