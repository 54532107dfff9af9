package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/numalet/numalet/agent/node/config"

	"github.com/numalet/numalet/cmd/internal/cli"
)

// usage shows the agent's flags in sections, wrapped at the terminal's width, at most at
// cli.NoTerminal. Subcommands show theirs in one list.
func usage(agent *cobra.Command, flags *config.Flags) func(*cobra.Command) error {
	usual := agent.UsageFunc()
	return func(cmd *cobra.Command) error {
		if cmd != agent {
			return usual(cmd)
		}
		var b strings.Builder
		fmt.Fprintf(&b, "Usage:\n  %s [flags]\n  %[1]s [command]\n\nCommands:\n", cmd.Name())
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				fmt.Fprintf(&b, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
			}
		}
		out := cmd.OutOrStderr()
		b.WriteString(flags.Help(min(cli.Width(out), cli.NoTerminal)))
		_, err := fmt.Fprintf(out, "%s\nUse \"%s [command] --help\" to know more of a command.\n",
			b.String(), cmd.Name())
		return err
	}
}
