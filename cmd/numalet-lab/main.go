// Command numalet-lab has what needs no node: playgrounds, benchmarks, many nodes without hardware, a
// simulated container runtime, and device plugins for hardware that every machine has or none. "numalet
// playground" and so on start it.
package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/numalet/numalet/cmd/internal/cli"
	"github.com/numalet/numalet/cmd/numalet-lab/containerd/workload"
	"github.com/numalet/numalet/cmd/numalet-lab/rig"
	"github.com/numalet/numalet/internal/version"
)

func main() {
	if code, is := workload.Applet(os.Args[0], os.Args[1:]); is { // in a container, as /bin/ls
		os.Exit(code)
	}
	cli.Run(newCommand(filepath.Base(os.Args[0]))) // the name is numalet's if that started us
}

// newCommand returns the program's commands under the name that a user typed.
func newCommand(name string) *cobra.Command {
	cmd := cli.Group(name, "Playgrounds, benchmarks, simulators and plugins beside the node agent",
		newPlaygroundCommand(),
		newRigCommand(),
		newBenchCommand(),
		newNodesCommand(),
		cli.Group("plugin", "Run a device plugin", newPluginSimCommand(), newPluginENICommand()),
		newCRISimCommand(),
		workload.Command(), // for the images made from this executable; hidden
	)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.Version = version.Get().String()
	cli.Complete(cmd, map[string]cobra.CompletionFunc{
		"topology-from": cli.Machines,
		"machine":       cli.Machines,
		"mix":           cli.Words(rig.MixNames(), cobra.ShellCompDirectiveDefault),
		"policies":      completePolicies,
	})
	return cmd
}

// completePolicies completes the last word of a list of policies.
func completePolicies(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	before := typed[:strings.LastIndexAny(typed, ",+/=")+1]
	var out []string
	for _, word := range rig.PolicyWords() {
		out = append(out, before+word)
	}
	return out, cli.NoFiles | cobra.ShellCompDirectiveNoSpace
}
