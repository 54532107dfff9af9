package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/numalet/numalet/agent/version"
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
				return writeJSON(out, version.Get())
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "numalet", version.Get())
			return err
		},
	}
	choose(cmd.Flags(), &format, "output", "o", "how to print", "text", "json")
	return cmd
}

// writeJSON writes a value as indented JSON.
func writeJSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(value)
}
