package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/numalet/numalet/cmd/numalet-lab/sim"
	"github.com/numalet/numalet/topology"

	"github.com/numalet/numalet/cmd/internal/cli"
)

// ctl holds what the subcommands of "numalet plugin sim ctl" share.
type ctl struct {
	control string
	timeout time.Duration
}

func newPluginCtlCommand() *cobra.Command {
	c := &ctl{}
	cmd := cli.Group("ctl", "Give orders to a running plugin sim",
		c.stateCommand(),
		c.verb("healthy ID...", "Make devices healthy",
			func(ctx context.Context, p *sim.Client, ids []string) error {
				return p.SetHealth(ctx, true, ids...)
			}),
		c.unhealthyCommand(),
		c.verb("remove ID...", "Remove devices",
			func(ctx context.Context, p *sim.Client, ids []string) error {
				return p.Remove(ctx, ids...)
			}),
		c.addCommand(),
		c.faultCommand(),
		c.verb("clear", "End all misbehaviour", plainOrder((*sim.Client).ClearFaults)),
		c.verb("restart", "Close the socket, serve and register again",
			plainOrder((*sim.Client).Restart)),
		c.verb("crash", "Exit with status 1, sockets left behind", plainOrder((*sim.Client).Crash)),
	)
	cmd.PersistentFlags().StringVar(&c.control, "control", "", "the plugin's control socket")
	cmd.PersistentFlags().DurationVar(&c.timeout, "timeout", 10*time.Second,
		"how long to wait for the plugin")
	return cmd
}

// simOrder tells a plugin what to do.
type simOrder func(ctx context.Context, p *sim.Client, args []string) error

// plainOrder returns an order that has no arguments.
func plainOrder(do func(*sim.Client, context.Context) error) simOrder {
	return func(ctx context.Context, p *sim.Client, _ []string) error { return do(p, ctx) }
}

// unhealthyCommand returns "ctl unhealthy ID...".
func (c *ctl) unhealthyCommand() *cobra.Command {
	var reason string
	cmd := c.verb("unhealthy ID...", "Make devices unhealthy",
		func(ctx context.Context, p *sim.Client, ids []string) error {
			return p.Sicken(ctx, reason, ids...)
		})
	cmd.Flags().StringVar(&reason, "reason", "", "what the plugin says of it when it is asked")
	return cmd
}

// verb returns a subcommand that gives an order to the plugin. If its use contains "...", it takes
// at least one argument, otherwise none.
func (c *ctl) verb(use, short string, do simOrder) *cobra.Command {
	args := cobra.NoArgs
	if strings.Contains(use, "...") {
		args = cobra.MinimumNArgs(1)
	}
	return &cobra.Command{
		Use: use, Short: short, Args: args,
		RunE: func(cmd *cobra.Command, ids []string) error {
			return c.call(cmd.Context(), func(ctx context.Context, p *sim.Client) error {
				return do(ctx, p, ids)
			})
		},
	}
}

func (c *ctl) call(ctx context.Context, do func(context.Context, *sim.Client) error) error {
	if c.control == "" {
		return errors.New("--control is not given: name the socket that the plugin was started " +
			"with")
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	err := do(ctx, sim.NewClient(c.control))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("no plugin listens on %s: start numalet plugin sim with --control %s",
			c.control, c.control)
	}
	return err
}

func (c *ctl) stateCommand() *cobra.Command {
	return &cobra.Command{
		Use: "state", Short: "Print devices, faults and counts of calls as JSON",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.call(cmd.Context(), func(ctx context.Context, p *sim.Client) error {
				state, err := p.State(ctx)
				if err != nil {
					return err
				}
				return cli.WriteJSON(cmd.OutOrStdout(), state)
			})
		},
	}
}

func (c *ctl) addCommand() *cobra.Command {
	var nodes string
	add := func(ctx context.Context, p *sim.Client, ids []string) error {
		set, err := topology.ParseNodeSet(nodes)
		if err != nil {
			return badNodes(nodes)
		}
		var devices []sim.Device
		for _, id := range ids {
			devices = append(devices, sim.Device{ID: id, Healthy: true, Nodes: set.IDs()})
		}
		return p.Add(ctx, devices...)
	}
	cmd := c.verb("add ID...", "Add devices", add)
	cmd.Flags().StringVar(&nodes, "nodes", "", "NUMA nodes of each of the devices")
	return cmd
}

func (c *ctl) faultCommand() *cobra.Command {
	var fault sim.Fault
	long := "Make a call misbehave. RPC is one of:\n"
	for _, rpc := range sim.RPCs() {
		long += fmt.Sprintf("  %s\n", rpc)
	}
	cmd := &cobra.Command{
		Use: "fault RPC", Short: "Make a call misbehave", Long: long,
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
	f.StringVar((*string)(&fault.Lie), "lie", "",
		"answer wrongly: foreign, few, empty, duplicate, nowhere")
	f.IntVar(&fault.Count, "count", 0, "how many calls misbehave (all)")
	return cmd
}
