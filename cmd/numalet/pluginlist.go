package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/numalet/numalet/agent/storage/volume/csi"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/dra"

	"github.com/numalet/numalet/cmd/internal/ask"
	"github.com/numalet/numalet/cmd/internal/cli"
)

// newPluginListCommand returns "numalet plugin list".
func newPluginListCommand() *cobra.Command {
	var server ask.Agent
	var format string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the plugins and drivers of a running agent: sockets, calls, last errors",
		Long: `List the device plugins that a running agent knows, by resource: the socket and how
the plugin registered, its devices, the calls that were made, how many of them
failed, and what the last one that failed said. What is wrong with what plugins
say is at /problems of the read-only port.

The drivers of resource claims (DRA) follow, by name: the sockets of their plugins,
the service in use and that of health, whether they are connected and which of
them is called, the calls, how long the last of each took, and the last error.

The drivers of volumes (CSI) come last, by name: socket, version, what they call the
node, how many volumes it can have, the calls since they registered, and the last error.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listPlugins(cmd.Context(), cmd.OutOrStdout(), &server, format)
		},
	}
	cli.Choose(cmd.Flags(), &format, "output", "o", "how to print", "text", "json")
	server.Add(cmd.Flags())
	return cmd
}

func listPlugins(ctx context.Context, out io.Writer, server *ask.Agent, format string) error {
	var peers []devicemanager.Peer
	if err := server.Get(ctx, &peers, "plugins"); err != nil {
		return err
	}
	var drivers []dra.Driver
	if err := server.Get(ctx, &drivers, "drivers"); err != nil {
		return err
	}
	var volumes []csi.Driver
	if err := server.Get(ctx, &volumes, "csidrivers"); err != nil {
		return err
	}
	switch {
	case format == "json":
		all := []any{} // drivers have a name instead of a resource
		for _, p := range peers {
			all = append(all, p)
		}
		for _, d := range drivers {
			all = append(all, d)
		}
		for _, d := range volumes {
			all = append(all, d)
		}
		return cli.WriteJSON(out, all)
	case len(peers)+len(drivers)+len(volumes) == 0:
		_, err := fmt.Fprintln(out, "No device plugin, no DRA driver and no CSI driver has registered.")
		return err
	}
	return errors.Join(writePeers(out, peers), writeDrivers(out, drivers, len(peers) > 0),
		writeVolumeDrivers(out, volumes, len(peers)+len(drivers) > 0))
}

func writePeers(out io.Writer, peers []devicemanager.Peer) error {
	if len(peers) == 0 {
		return nil
	}
	rows := newRows(out)
	rows.add("RESOURCE", "SOCKET", "REGISTERED BY", "HEALTHY", "STATE", "CALLS", "LAST ERROR")
	for _, p := range peers {
		state, socket := "connected", "-"
		if p.Problem != "" {
			state = p.Problem
		}
		for _, wrong := range p.Complaints {
			state += "; " + wrong.Message
		}
		if p.Endpoint != "" {
			socket = filepath.Base(p.Endpoint)
		}
		healthy := fmt.Sprintf("%d of %d", p.Healthy, p.Devices)
		if p.Cordoned > 0 {
			healthy += fmt.Sprintf(", %d cordoned", p.Cordoned)
		}
		rows.add(p.Resource, socket, cmp.Or(string(p.Way), "-"), healthy, state,
			cmp.Or(callsOf(p), "-"), lastError(p.LastError, p.LastErrorAt))
	}
	return rows.Flush()
}

// callsOf returns the number of calls to a plugin, by method.
func callsOf(p devicemanager.Peer) string {
	var parts []string
	for _, rpc := range slices.Sorted(maps.Keys(p.Calls)) {
		parts = append(parts, callsText(rpc, p.Calls[rpc].All, p.Calls[rpc].Failed))
	}
	return strings.Join(parts, ", ")
}

func callsText(rpc string, all, failed int) string {
	text := fmt.Sprintf("%s %d", rpc, all)
	if failed > 0 {
		text += fmt.Sprintf(" (%d failed)", failed)
	}
	return text
}

func lastError(text string, at *time.Time) string {
	if at == nil {
		return "-"
	}
	return duration.HumanDuration(time.Since(*at)) + " ago: " + text
}

// writeDrivers prints a line for each plugin of a driver, and one for a driver without any.
func writeDrivers(out io.Writer, drivers []dra.Driver, below bool) error {
	if len(drivers) == 0 {
		return nil
	}
	if below {
		fmt.Fprintln(out)
	}
	rows := newRows(out)
	rows.add("DRA DRIVER", "SOCKET", "SERVICE", "HEALTH", "STATE", "CALLS", "LAST ERROR")
	for _, d := range drivers {
		calls, last := cmp.Or(driverCalls(d), "-"), lastError(d.LastError, d.LastErrorAt)
		if len(d.Instances) == 0 {
			rows.add(d.Name, "-", "-", "-", d.Problem(), calls, last)
		}
		for i, in := range d.Instances {
			state := "connected"
			switch {
			case !in.Connected:
				state = cmp.Or(in.Problem, "not connected")
			case in.Called && len(d.Instances) > 1:
				state = "connected, called"
			}
			if i > 0 {
				calls, last = "", "" // they are the driver's
			}
			rows.add(d.Name, filepath.Base(in.Endpoint), in.Service, cmp.Or(in.HealthService, "-"),
				state, calls, last)
		}
	}
	return rows.Flush()
}

// writeVolumeDrivers prints a line for each driver of volumes.
func writeVolumeDrivers(out io.Writer, drivers []csi.Driver, below bool) error {
	if len(drivers) == 0 {
		return nil
	}
	if below {
		fmt.Fprintln(out)
	}
	rows := newRows(out)
	rows.add("CSI DRIVER", "SOCKET", "VERSION", "NODE ID", "VOLUMES", "STATE", "CALLS", "LAST ERROR")
	for _, d := range drivers {
		state, socket, most := "not registered", "-", "-"
		if d.Registered {
			state, socket, most = "registered", filepath.Base(d.Endpoint), "any number"
		}
		if d.MaxVolumes > 0 {
			most = fmt.Sprintf("at most %d", d.MaxVolumes)
		}
		var calls []string
		for _, rpc := range slices.Sorted(maps.Keys(d.Calls)) {
			calls = append(calls, callsText(rpc, d.Calls[rpc].All, d.Calls[rpc].Failed))
		}
		rows.add(d.Name, socket, cmp.Or(d.Version, "-"), cmp.Or(d.NodeID, "-"), most, state,
			cmp.Or(strings.Join(calls, ", "), "-"), lastError(d.LastError, d.LastErrorAt))
	}
	return rows.Flush()
}

// driverCalls returns the number of calls to a driver, by method, and how long the last ones took.
func driverCalls(d dra.Driver) string {
	var parts []string
	for _, rpc := range slices.Sorted(maps.Keys(d.Calls)) {
		c := d.Calls[rpc]
		took := time.Duration(c.LastSeconds * float64(time.Second)).Round(time.Millisecond)
		parts = append(parts, fmt.Sprintf("%s, the last in %v", callsText(rpc, c.All, c.Failed), took))
	}
	return strings.Join(parts, "; ")
}
