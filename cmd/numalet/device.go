package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/numalet/numalet/agent/placement/devices"

	"github.com/numalet/numalet/cmd/internal/cli"
)

func newDeviceCommand() *cobra.Command {
	return cli.Group("device", "List the devices of an agent, and say which are not to be given out",
		newDeviceListCommand(), newCordonCommand(), newUncordonCommand())
}

// newDeviceListCommand returns "numalet device list".
func newDeviceListCommand() *cobra.Command {
	var at asked
	var format string
	cmd := &cobra.Command{
		Use:   "list [RESOURCE]",
		Short: "List devices: their health, who has them, which are cordoned",
		Long: `List the devices that plugins offer to a running agent, with their health, their
NUMA nodes, their place in the PCI tree as far as it is known, and the containers that
have them, and the devices that are cordoned, also those that no plugin lists now.

The devices of drivers of resource claims (DRA) follow, as the node's ResourceSlices have
them, by the driver's name. Of partitions only those are listed that a claim has.`,
		Example: "  numalet device list example.com/gpu\n  numalet device list --node node1 -o json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			rows, err := at.devices(cmd.Context(), "")
			if err == nil && len(args) > 0 {
				rows, err = ofResource(rows, args[0])
			}
			if err != nil {
				return err
			}
			if format == "json" {
				return cli.WriteJSON(cmd.OutOrStdout(), rows)
			}
			return printDevices(cmd.OutOrStdout(), rows)
		},
		ValidArgsFunction: at.completeDevices(1, nil),
	}
	cli.Choose(cmd.Flags(), &format, "output", "o", "how to print", "text", "json")
	at.Add(cmd.Flags())
	return cmd
}

// ofResource returns the devices of a resource. If there are only others, the error names these.
func ofResource(all []devices.Row, resource string) ([]devices.Row, error) {
	rows, others := []devices.Row{}, []string{}
	for _, r := range all {
		switch {
		case r.Resource == resource:
			rows = append(rows, r)
		case !slices.Contains(others, r.Resource):
			others = append(others, r.Resource)
		}
	}
	if len(rows) == 0 && len(others) > 0 {
		return nil, fmt.Errorf("no device plugin or driver has told of devices of %s; there are those of %s", resource,
			strings.Join(others, ", "))
	}
	return rows, nil
}

func printDevices(out io.Writer, all []devices.Row) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(out, "No device plugin and no driver has told of any device.")
		return err
	}
	rows := newRows(out)
	placed := slices.ContainsFunc(all, func(r devices.Row) bool { return r.PCI != "" })
	places := func(of ...string) []string {
		if !placed {
			return nil
		}
		return of
	}
	rows.add(slices.Concat([]string{"RESOURCE", "ID", "HEALTH", "NODES"}, places("PCI", "UNDER"),
		[]string{"HELD BY", "CORDONED"})...)
	for _, r := range all {
		health := r.Health
		if r.Reason != "" {
			health += ": " + r.Reason
		}
		if failing := outlooks(r.Failures); failing != "" {
			health += "; " + failing
		}
		rows.add(slices.Concat([]string{r.Resource, r.ID, health, cmp.Or(r.Nodes, "-")},
			places(cmp.Or(r.PCI, "-"), cmp.Or(under(r), "-")),
			[]string{cmp.Or(heldBy(r), "-"), cmp.Or(cordoned(r), "-")})...)
	}
	return rows.Flush()
}

// under says what a device shares with those close to it: its PCIe switch, or else its root
// complex.
func under(r devices.Row) string {
	switch {
	case r.Switch != "":
		return "switch " + r.Switch
	case r.Root != "":
		return "root " + r.Root
	}
	return ""
}

// outlooks says since when a device is unhealthy, and what becomes of the containers that have it.
func outlooks[F interface{ String(now time.Time) string }](failures []F) string {
	var out []string
	for _, f := range failures {
		if text := f.String(time.Now()); !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return strings.Join(out, "; ")
}

// heldBy names the containers that have a device. If none has, it names the one that had it, as
// long as the device plugin has not been told of the release, or the claim that has the hardware.
func heldBy(r devices.Row) string {
	switch {
	case len(r.HeldBy) > 0:
	case r.ReleasedBy != "":
		return "released by " + r.ReleasedBy + ", its plugin is being told"
	case r.Claimed != "":
		return r.Claimed
	case len(r.Parts) > 0:
		return "in parts: " + strings.Join(r.Parts, ", ")
	}
	return strings.Join(r.HeldBy, ", ")
}

// cordoned says since when a device is cordoned, and why.
func cordoned(r devices.Row) string {
	if r.Cordon == nil {
		return ""
	}
	text := duration.HumanDuration(time.Since(r.Cordon.Since)) + " ago"
	if r.Cordon.Reason != "" {
		text += ": " + r.Cordon.Reason
	}
	return text
}

// newCordonCommand returns "numalet device cordon RESOURCE ID".
func newCordonCommand() *cobra.Command {
	var at asked
	var reason string
	cmd := &cobra.Command{
		Use:   "cordon RESOURCE ID",
		Short: "Have a device not given to new containers",
		Long: `Have a device not given to new containers, until it is uncordoned. A container that
has it keeps it. This holds across restarts of the agent and of the plugin, and for a
device that is not there now, should it come back under its id.`,
		Example: "  numalet device cordon example.com/gpu gpu-3 --reason 'row remapping pending'",
		Args:    oneDevice,
		RunE: func(cmd *cobra.Command, args []string) error {
			answer, err := at.change(cmd.Context(), "cordon", devices.Question{
				Resource: args[0], ID: args[1], Reason: reason,
			})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), saysCordoned(answer))
			return err
		},
		ValidArgsFunction: at.completeDevices(2, func(r devices.Row) bool { return r.Cordon == nil && !r.ByClaims }),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for those who read the list")
	at.Add(cmd.Flags())
	return cmd
}

func saysCordoned(a devices.Answer) string {
	d := a.Device
	text := fmt.Sprintf("%s %s is cordoned", d.Resource, d.ID)
	if !a.Changed {
		text = fmt.Sprintf("%s %s was cordoned already", d.Resource, d.ID)
	}
	switch {
	case len(d.HeldBy) > 0:
		text += "; it stays with " + strings.Join(d.HeldBy, ", ")
	case d.Health == devices.HealthAbsent:
		text += "; no plugin lists it now (numalet device list), and it stays cordoned if one does"
	}
	return text
}

// newUncordonCommand returns "numalet device uncordon RESOURCE ID".
func newUncordonCommand() *cobra.Command {
	var at asked
	cmd := &cobra.Command{
		Use:     "uncordon RESOURCE ID",
		Short:   "Have a device given to new containers again",
		Long:    `Have a device that was cordoned given to new containers again.`,
		Example: "  numalet device uncordon example.com/gpu gpu-3",
		Args:    oneDevice,
		RunE: func(cmd *cobra.Command, args []string) error {
			answer, err := at.change(cmd.Context(), "uncordon", devices.Question{
				Resource: args[0], ID: args[1],
			})
			if err != nil {
				return err
			}
			text := "is uncordoned"
			if !answer.Changed {
				text = "was not cordoned"
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), args[0], args[1], text)
			return err
		},
		ValidArgsFunction: at.completeDevices(2, func(r devices.Row) bool { return r.Cordon != nil }),
	}
	at.Add(cmd.Flags())
	return cmd
}

// oneDevice checks that the arguments are a resource and the id of one of its devices.
func oneDevice(cmd *cobra.Command, args []string) error {
	if len(args) == 2 {
		return nil
	}
	return fmt.Errorf("%s takes a resource and the id of one device, such as example.com/gpu gpu-3; "+
		"numalet device list has them", cmd.CommandPath())
}

// devices returns the devices of a resource, or of all resources if it is "".
func (a *asked) devices(ctx context.Context, resource string) (
	rows []devices.Row, err error) {
	err = a.Get(ctx, &rows, "devices")
	return slices.DeleteFunc(rows, func(r devices.Row) bool {
		return resource != "" && r.Resource != resource
	}), err
}

// change has the agent cordon or uncordon a device.
func (a *asked) change(ctx context.Context, what string, q devices.Question) (
	answer devices.Answer, err error) {
	err = a.Post(ctx, q, &answer, "devices", what)
	return answer, err
}

// completeDevices offers resources as the first argument and, if most is 2, the ids of wanted
// devices as the second.
func (a *asked) completeDevices(most int,
	wanted func(devices.Row) bool) cobra.CompletionFunc {
	return cli.Listed(most, func(ctx context.Context, args []string) (out []string, err error) {
		rows, err := a.devices(ctx, strings.Join(args, ""))
		for _, r := range rows {
			switch {
			case wanted != nil && !wanted(r):
			case len(args) == 0:
				out = append(out, r.Resource)
			default:
				out = append(out, r.ID)
			}
		}
		return slices.Compact(out), err
	})
}
