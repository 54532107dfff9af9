// Package cli has what the command lines of numalet and numalet-lab share.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/discover"
)

// Exit is an error with the process's exit code. If Quiet is set, the user has been told already.
type Exit struct {
	error
	Code  int
	Quiet bool
}

// NewExit returns err with an exit code.
func NewExit(err error, code int) Exit { return Exit{error: err, Code: code} }

// Run runs the command until it ends or the process is told to stop, and ends the process.
func Run(cmd *cobra.Command) {
	if err := CheckCommand(cmd, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", cmd.Name(), err)
		os.Exit(1)
	}
	// A closed terminal must not leave containers of a playground behind.
	ctx, stop := signal.NotifyContext(context.Background(),
		os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := cmd.ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	end := NewExit(err, 1)
	errors.As(err, &end)
	if !end.Quiet {
		fmt.Fprintf(os.Stderr, "%s: %v\n", cmd.Name(), err)
	}
	os.Exit(end.Code)
}

// Complete adds to a whole command line what all of ours have: flags wrapped at the terminal's width,
// completions of flags, those of words by the flag's name, and a suggestion for a mistyped flag.
func Complete(cmd *cobra.Command, words map[string]cobra.CompletionFunc) {
	wrapped := fmt.Sprintf(".FlagUsagesWrapped %d", min(Width(os.Stdout), NoTerminal))
	cmd.SetUsageTemplate(strings.ReplaceAll(cmd.UsageTemplate(), ".FlagUsages", wrapped))
	cmd.SetFlagErrorFunc(SuggestFlag)
	cmd.InitDefaultCompletionCmd()
	completeBash(cmd)
	AddManual(cmd)
	addCompletions(cmd, words)
}

// Group returns a command that only holds subcommands: without one it prints the help, with an
// unknown one it returns an error.
func Group(name, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: short, Args: cobra.ArbitraryArgs}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return unknownCommand(cmd, args[0])
	}
	cmd.AddCommand(commands...)
	return cmd
}

// WriteJSON writes a value as indented JSON.
func WriteJSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(value)
}

// UnlessStopped returns why the agent did not start, or nil if it was told to stop meanwhile.
func UnlessStopped(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	klog.FromContext(ctx).Info("Told to stop before the start was complete", "meanwhile", err)
	return nil
}

// OpenMachine reads a machine as discover.Open does. A fixture may be named without "fixture:".
func OpenMachine(from string) (*topology.Machine, error) {
	if slices.Contains(discover.FixtureNames(), from) {
		return discover.Fixture(from)
	}
	return discover.Open(from)
}
