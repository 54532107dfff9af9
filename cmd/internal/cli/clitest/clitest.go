// Package clitest tests command lines.
package clitest

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/numalet/numalet/cmd/internal/cli"
)

// HelpFits fails unless the help of every command of the program fits the width that holds without
// a terminal.
func HelpFits(t *testing.T, program func() *cobra.Command) {
	var commands []string
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		another := cmd.DisableFlagParsing // another program has it
		if (cmd.IsAvailableCommand() || !cmd.HasParent()) && !another {
			commands = append(commands, cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(program())
	for _, command := range commands {
		t.Run(command, func(t *testing.T) {
			var out bytes.Buffer
			cmd := program()
			cmd.SetOut(&out)
			cmd.SetArgs(append(strings.Fields(command)[1:], "--help"))
			if err := cmd.Execute(); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), "Usage:\n  "+command) {
				t.Errorf("there is no usage of %s:\n%s", command, &out)
			}
			for line := range strings.Lines(out.String()) {
				line = strings.TrimRight(line, "\n")
				words := strings.Fields(line) // one long word may be a default or an example
				if n := utf8.RuneCountInString(line); n > cli.NoTerminal && len(words) > 1 {
					t.Errorf("%d columns: %s", n, line)
				}
			}
		})
	}
}

// Completes fails unless the program offers word where the user has typed so far, words separated by
// blanks.
func Completes(t *testing.T, cmd *cobra.Command, typed, word string) {
	t.Helper()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(append([]string{cobra.ShellCompRequestCmd}, strings.Split(typed, " ")...))
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Errorf("%s: %v", typed, err)
	}
	for line := range strings.Lines(out.String()) {
		if offer, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); offer == word {
			return
		}
	}
	t.Errorf("%s: no %s in\n%s", typed, word, &out)
}
