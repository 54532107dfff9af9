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

	"github.com/numalet/numalet/agent/placement/claims"

	"github.com/numalet/numalet/cmd/internal/cli"
)

func newClaimCommand() *cobra.Command {
	return cli.Group("claim",
		"List the resource claims that an agent has prepared, and have one forgotten",
		newClaimListCommand(), newClaimForgetCommand())
}

// newClaimListCommand returns "numalet claim list".
func newClaimListCommand() *cobra.Command {
	var at asked
	var format string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List resource claims: who uses them, what their drivers did",
		Long: `List the ResourceClaims that pods of a running agent use, or that drivers may still
have prepared: the pods, and for each driver since when it has prepared the claim, or
is to prepare or unprepare it, and why its last call failed.`,
		Example: "  numalet claim list\n  numalet claim list --node node1 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rows, err := at.claims(cmd.Context())
			if err != nil {
				return err
			}
			if format == "json" {
				return cli.WriteJSON(cmd.OutOrStdout(), rows)
			}
			return printClaims(cmd.OutOrStdout(), rows)
		},
	}
	cli.Choose(cmd.Flags(), &format, "output", "o", "how to print", "text", "json")
	at.Add(cmd.Flags())
	return cmd
}

func printClaims(out io.Writer, all []claims.Row) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(out, "No pod of this node uses a resource claim.")
		return err
	}
	rows := newRows(out)
	rows.add("CLAIM", "PODS", "DRIVER", "STATE", "SINCE", "DEVICES", "LAST ERROR")
	for _, r := range all {
		name, pods := r.Namespace+"/"+r.Name, claimants(r)
		for _, d := range r.Drivers {
			rows.add(name, pods, d.Driver, driverState(d),
				duration.HumanDuration(time.Since(d.Since))+" ago",
				cmp.Or(claimDevices(d), "-"), cmp.Or(d.LastError, "-"))
		}
		if len(r.Drivers) == 0 {
			rows.add(name, pods, "-", "-", "-", "-", "-")
		}
	}
	return rows.Flush()
}

// claimDevices names the devices, and says which are unhealthy and what becomes of their holders.
func claimDevices(d claims.DriverRow) string {
	var out []string
	for _, name := range d.Devices {
		others := func(f claims.Failure) bool { return f.Device != name }
		if text := outlooks(slices.DeleteFunc(slices.Clone(d.Failures), others)); text != "" {
			name += " (" + text + ")"
		}
		out = append(out, name)
	}
	return strings.Join(out, ", ")
}

// claimants names the pods that use a claim.
func claimants(r claims.Row) string {
	var out []string
	for _, u := range r.Users {
		text := cmp.Or(u.Pod, "UID "+string(u.UID))
		if u.Ended {
			text += " (ended)"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func driverState(d claims.DriverRow) string {
	if d.Registered {
		return d.State
	}
	return d.State + ", not registered"
}

// newClaimForgetCommand returns "numalet claim forget NAMESPACE/NAME".
func newClaimForgetCommand() *cobra.Command {
	var at asked
	cmd := &cobra.Command{
		Use:   "forget NAMESPACE/NAME",
		Short: "Have a resource claim not unprepared, so that its pod may end",
		Long: `Have the agent forget a ResourceClaim that only pods use which have ended, and whose
driver does not come back to unprepare it. The pods then need not wait for the driver
any more. What the driver has prepared on this machine stays so; an event of the claim
and of the pods says that.`,
		Example: "  numalet claim forget team/train-gpus-x7k2p",
		Args:    oneClaim,
		RunE: func(cmd *cobra.Command, args []string) error {
			row, err := at.forget(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), saysForgotten(row))
			return err
		},
		ValidArgsFunction: cli.Listed(1, at.endedClaims),
	}
	at.Add(cmd.Flags())
	return cmd
}

func saysForgotten(r claims.Row) string {
	text := fmt.Sprintf("%s/%s is forgotten", r.Namespace, r.Name)
	for _, d := range r.Drivers {
		if len(d.Devices) > 0 || d.State == string(claims.StagePreparing) {
			text += fmt.Sprintf("; %s may still have its devices prepared", d.Driver)
		}
	}
	return text
}

// oneClaim checks that the argument is the namespace and name of a claim.
func oneClaim(cmd *cobra.Command, args []string) error {
	if len(args) == 1 && strings.Count(args[0], "/") == 1 {
		return nil
	}
	return fmt.Errorf("%s takes the namespace and name of one claim, such as team/train-gpus-x7k2p; "+
		"numalet claim list has them", cmd.CommandPath())
}

func (a *asked) claims(ctx context.Context) (rows []claims.Row, err error) {
	err = a.Get(ctx, &rows, "claims")
	return rows, err
}

func (a *asked) forget(ctx context.Context, claim string) (row claims.Row, err error) {
	namespace, name, _ := strings.Cut(claim, "/")
	err = a.Post(ctx, claims.Question{Namespace: namespace, Name: name}, &row, "claims", "forget")
	return row, err
}

// endedClaims lists the claims that only pods use which have ended.
func (a *asked) endedClaims(ctx context.Context, _ []string) (out []string, err error) {
	rows, err := a.claims(ctx)
	for _, r := range rows {
		if !slices.ContainsFunc(r.Users, func(u claims.UserRow) bool { return !u.Ended }) {
			out = append(out, r.Namespace+"/"+r.Name)
		}
	}
	return out, err
}
