// Command numalet is the node agent and its tools: machines described as data, a simulated device
// plugin, a simulated container runtime, and a playground that joins them.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/numalet/numalet/internal/lab/containerd/workload"
)

func main() {
	// A closed terminal must not leave containers of a playground behind.
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

// newCommand returns numalet with its subcommands. Without a subcommand it is the agent, with the
// kubelet's command line.
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
		newClaimCommand(),
		newCRISimCommand(),
		newVersionCommand(),
		workload.Command(), // for the images made from this executable; hidden
	)
	cmd.SetFlagErrorFunc(suggestFlag)
	cmd.InitDefaultCompletionCmd()
	addCompletions(cmd)
	return cmd
}

// group returns a command that only holds subcommands: without one it prints the help, with an
// unknown one it returns an error.
func group(name, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: short, Args: cobra.ArbitraryArgs}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return fmt.Errorf("%s has no %q: %s --help lists what it has", cmd.CommandPath(), args[0],
			cmd.CommandPath())
	}
	cmd.AddCommand(commands...)
	return cmd
}
