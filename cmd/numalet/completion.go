package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/numalet/numalet/internal/lab/rig"
	"github.com/numalet/numalet/topology/discover"
)

// completionTimeout bounds how long a shell waits for an answer of an agent.
const completionTimeout = 2 * time.Second

// completions maps a flag's name to what it completes to besides files, for all commands.
var completions = map[string]cobra.CompletionFunc{
	"topology-from": completeMachines,
	"machine":       completeMachines,
	"mix":           words(rig.MixNames(), cobra.ShellCompDirectiveDefault),
	"policies":      completePolicies,
}

const noFiles = cobra.ShellCompDirectiveNoFileComp

func words(of []string, directive cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return of, directive
	}
}

// complete completes up to most arguments with what list returns, given those before. If list
// fails or takes too long, nothing is offered.
func complete(most int, list func(ctx context.Context, before []string) ([]string, error),
) cobra.CompletionFunc {
	return func(cmd *cobra.Command, before []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(before) >= most {
			return nil, noFiles
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		offers, err := list(ctx, before)
		if err != nil {
			return nil, noFiles
		}
		return offers, noFiles
	}
}

// completeMachines lists the built-in machines.
func completeMachines(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var out []string
	for _, name := range discover.FixtureNames() {
		out = append(out, "fixture:"+name)
	}
	return out, cobra.ShellCompDirectiveDefault
}

// completePolicies completes the last word of a list of policies.
func completePolicies(_ *cobra.Command, _ []string, typed string) (
	[]string, cobra.ShellCompDirective) {
	before := typed[:strings.LastIndexAny(typed, ",+/=")+1]
	var out []string
	for _, word := range rig.PolicyWords() {
		out = append(out, before+word)
	}
	return out, noFiles | cobra.ShellCompDirectiveNoSpace
}

// addCompletions registers the completions for the flags of cmd and all its subcommands.
func addCompletions(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		of := completions[f.Name]
		if c, ok := f.Value.(choice); ok {
			of = words(c.of, noFiles)
		}
		if of == nil {
			return
		}
		if err := cmd.RegisterFlagCompletionFunc(f.Name, of); err != nil {
			panic(err) // each flag is registered once
		}
	})
	for _, sub := range cmd.Commands() {
		addCompletions(sub)
	}
}
