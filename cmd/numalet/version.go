package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/numalet/numalet/internal/version"

	"github.com/numalet/numalet/cmd/internal/cli"
)

// newVersionCommand returns "numalet version".
func newVersionCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Say which build this is",
		Long: `Say which build this is: the version of Kubernetes that it speaks, and behind the
plus the build of numalet.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out := cmd.OutOrStdout(); format == "json" {
				return cli.WriteJSON(out, version.Get())
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "numalet", version.Get())
			return err
		},
	}
	cli.Choose(cmd.Flags(), &format, "output", "o", "how to print", "text", "json")
	return cmd
}
