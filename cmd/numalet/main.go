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
)

func main() {
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
		newFitCommand(),
		newBenchCommand(),
		newPodResourcesCommand(),
		newPluginCommand(),
		newCRISimCommand(),
		newContainerCommand(),
	)
	cmd.CompletionOptions.HiddenDefaultCmd = true
	return cmd
}
