// Command numalet is the node agent, and what belongs around it: machines as data, a device
// plugin and a container runtime that are simulated, and a playground of all of them.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/numalet/numalet/cri/containerd/workload"
)

func main() {
	// A terminal that is closed must not leave containers of a playground behind.
	ctx, stop := signal.NotifyContext(context.Background(),
		os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	end := exit{error: err, code: 1}
	errors.As(err, &end)
	if !end.quiet {
		fmt.Fprintln(os.Stderr, "numalet:", err)
	}
	os.Exit(end.code)
}

// newCommand is numalet with its subcommands. Without one it is the agent, with the kubelet's
// command line.
func newCommand() *cobra.Command {
	cmd := newAgentCommand()
	cmd.AddCommand(
		newPlaygroundCommand(),
		newTopologyCommand(),
		newExplainCommand(),
		newEventsCommand(),
		newFitCommand(),
		newBenchCommand(),
		newNodesCommand(),
		newPodResourcesCommand(),
		newPluginCommand(),
		newDeviceCommand(),
		newCRISimCommand(),
		newVersionCommand(),
		workload.Command(), // of the images made from this executable; hidden
	)
	cmd.SetFlagErrorFunc(suggestFlag)
	cmd.InitDefaultCompletionCmd()
	addCompletions(cmd)
	return cmd
}

// onlyTools is for a command that does nothing but hold others: help without one, an error for one
// that there is not.
func onlyTools(cmd *cobra.Command) {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return fmt.Errorf("%s has no %q: %s --help lists what it has", cmd.CommandPath(), args[0],
			cmd.CommandPath())
	}
}
