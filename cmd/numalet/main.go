// Command numalet is the node agent, and what operators and authors of device plugins ask of it.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/numalet/numalet/cmd/internal/cli"
)

func main() {
	cmd := newCommand(cli.StartLab)
	if words := os.Args[1:]; cli.CompletesLab(cmd, words) {
		fmt.Fprintln(os.Stderr, "numalet:", cli.StartLab(words))
		os.Exit(1)
	}
	cli.Run(cmd)
}

func hidden(cmd *cobra.Command) *cobra.Command {
	cmd.Hidden = true
	return cmd
}

// newCommand returns numalet with its subcommands. Without a subcommand it is the agent, with the
// kubelet's command line. Commands of cli.LabProgram are left to lab.
func newCommand(lab func(words []string) error) *cobra.Command {
	cmd := newAgentCommand()
	cmd.AddCommand(
		cli.Lab("playground", lab),
		newTopologyCommand(),
		newExplainCommand(),
		newEventsCommand(),
		newPodsCommand(),
		newLogsCommand(),
		newProblemsCommand(),
		newStatusCommand(),
		newFitCommand(),
		newPreflightCommand(),
		cli.Lab("rig", lab),
		hidden(cli.Lab("bench", lab)),
		cli.Lab("nodes", lab),
		newPodResourcesCommand(),
		cli.Group("plugin", "Write or check a device plugin, list those of an agent, or run one",
			newPluginNewCommand(), newPluginCheckCommand(), newPluginListCommand(), cli.Lab("plugin sim", lab), cli.Lab("plugin eni", lab)),
		newDriverCommand(),
		newDeviceCommand(),
		newClaimCommand(),
		cli.Lab("cri", lab),
		newVersionCommand(),
	)
	cli.Complete(cmd, map[string]cobra.CompletionFunc{"topology-from": cli.Machines})
	return cmd
}
