package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/numalet/numalet/internal/complaint"

	"github.com/numalet/numalet/cmd/internal/cli"
)

// newProblemsCommand returns "numalet problems".
func newProblemsCommand() *cobra.Command {
	var at asked
	var format string
	cmd := &cobra.Command{
		Use:   "problems",
		Short: "List manifests, plugins, drivers and volumes that need somebody to look at them",
		Long: `List what a running agent has found wrong and is wrong still: manifests that were
refused or have fields that were ignored, device plugins, drivers, and volumes.`,
		Example: "  numalet problems\n  numalet problems --node node1 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all := []complaint.Problem{}
			if err := at.Get(cmd.Context(), &all, "problems"); err != nil {
				return err
			}
			if format == "json" {
				return cli.WriteJSON(cmd.OutOrStdout(), all)
			}
			return printProblems(cmd.OutOrStdout(), all)
		},
	}
	cli.Choose(cmd.Flags(), &format, "output", "o", "how to print", "text", "json")
	at.Add(cmd.Flags())
	return cmd
}

func printProblems(out io.Writer, all []complaint.Problem) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(out, "Nothing is wrong with manifests, plugins, drivers and volumes.")
		return err
	}
	rows := newRows(out)
	rows.add("SOURCE", "NAME", "REASON", "MESSAGE")
	for _, p := range all {
		rows.add(p.Source, p.Name, p.Reason, p.Message)
	}
	return rows.Flush()
}
