package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

// newPluginListCommand returns "numalet plugin list".
func newPluginListCommand() *cobra.Command {
	server := newAgentAddress("127.0.0.1")
	var format string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the device plugins of a running agent: sockets, devices, calls, last errors",
		Long: `List the device plugins that a running agent knows, by resource: the socket and how
the plugin registered, its devices, the calls that were made, how many of them
failed, and what the last one that failed said. What is wrong with what plugins
say is at /problems of the read-only port.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listPlugins(cmd.Context(), cmd.OutOrStdout(), &server, format)
		},
	}
	choose(cmd.Flags(), &format, "output", "o", "how to print", "text", "json")
	server.add(cmd.Flags(), "the agent's read-only port")
	return cmd
}

func listPlugins(ctx context.Context, out io.Writer, server *agentAddress, format string) error {
	var peers []devicemanager.Peer
	if err := server.get(ctx, &peers, "plugins"); err != nil {
		return err
	}
	if format == "json" {
		return writeJSON(out, peers)
	}
	if len(peers) == 0 {
		_, err := fmt.Fprintln(out, "No device plugin has registered.")
		return err
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
			cmp.Or(callsOf(p), "-"), cmp.Or(lastError(p), "-"))
	}
	return rows.Flush()
}

// callsOf returns the number of calls to a plugin, by method.
func callsOf(p devicemanager.Peer) string {
	var parts []string
	for _, rpc := range slices.Sorted(maps.Keys(p.Calls)) {
		c := p.Calls[rpc]
		text := fmt.Sprintf("%s %d", rpc, c.All)
		if c.Failed > 0 {
			text += fmt.Sprintf(" (%d failed)", c.Failed)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

func lastError(p devicemanager.Peer) string {
	if p.LastErrorAt == nil {
		return ""
	}
	return duration.HumanDuration(time.Since(*p.LastErrorAt)) + " ago: " + p.LastError
}
