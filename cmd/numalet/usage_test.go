package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// The help of every command fits the width that holds without a terminal.
func TestHelpFits(t *testing.T) {
	var commands []string
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.IsAvailableCommand() || !cmd.HasParent() {
			commands = append(commands, cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newCommand())
	for _, command := range commands {
		t.Run(command, func(t *testing.T) {
			var out bytes.Buffer
			cmd := newCommand()
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
				if n := utf8.RuneCountInString(line); n > noTerminal && len(words) > 1 {
					t.Errorf("%d columns: %s", n, line)
				}
			}
		})
	}
}
