package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/numalet/numalet/agent/config"
)

// usage shows the agent's flags in sections. Subcommands show theirs in one list. Both are wrapped
// at the terminal's width, at most at noTerminal.
func usage(agent *cobra.Command, flags *config.Flags) func(*cobra.Command) error {
	wrapped := fmt.Sprintf(".FlagUsagesWrapped %d", min(width(os.Stdout), noTerminal))
	agent.SetUsageTemplate(strings.ReplaceAll(agent.UsageTemplate(), ".FlagUsages", wrapped))
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
		b.WriteString(flags.Help(min(width(out), noTerminal)))
		_, err := fmt.Fprintf(out, "%s\nUse \"%s [command] --help\" to know more of a command.\n",
			b.String(), cmd.Name())
		return err
	}
}
