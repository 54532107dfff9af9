package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/numalet/numalet/topology/discover"
)

// completionTimeout bounds how long a shell waits for an answer of an agent.
const completionTimeout = 2 * time.Second

// NoFiles says that a word is no file's name.
const NoFiles = cobra.ShellCompDirectiveNoFileComp

// Words completes to words.
func Words(of []string, directive cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return of, directive
	}
}

// Listed completes up to most arguments with what list returns, given those before. If list fails
// or takes too long, nothing is offered.
func Listed(most int, list func(ctx context.Context, before []string) ([]string, error),
) cobra.CompletionFunc {
	return func(cmd *cobra.Command, before []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(before) >= most {
			return nil, NoFiles
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		offers, err := list(ctx, before)
		if err != nil {
			return nil, NoFiles
		}
		return offers, NoFiles
	}
}

// Machines completes to the built-in machines.
func Machines(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var out []string
	for _, name := range discover.FixtureNames() {
		out = append(out, "fixture:"+name)
	}
	return out, cobra.ShellCompDirectiveDefault
}

// addCompletions registers the completions for the flags of cmd and all its subcommands.
func addCompletions(cmd *cobra.Command, words map[string]cobra.CompletionFunc) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		of := words[f.Name]
		if c, ok := f.Value.(choice); ok {
			of = Words(c.of, NoFiles)
		}
		if of == nil {
			return
		}
		if err := cmd.RegisterFlagCompletionFunc(f.Name, of); err != nil {
			panic(err) // each flag is registered once
		}
	})
	for _, sub := range cmd.Commands() {
		addCompletions(sub, words)
	}
}
