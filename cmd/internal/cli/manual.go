//go:build manual

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/numalet/numalet/internal/version"
)

// AddManual adds the hidden command "manual DIR", which writes a manual page of the program and of
// each of its commands. Programs built without the tag "manual" do not have it, nor its libraries.
func AddManual(root *cobra.Command) {
	root.AddCommand(&cobra.Command{
		Use: "manual DIR", Short: "Write the manual pages", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return writeManual(root, args[0]) },
	})
}

// writeManual writes the pages of a command and of those below it that users see.
func writeManual(cmd *cobra.Command, dir string) error {
	cmd.DisableAutoGenTag = true // it has the day
	if cmd.DisableFlagParsing {
		path := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
		cmd.Long = fmt.Sprintf("%s. %s(1) has the flags: the command is in %s, a program of its own, "+
			"which %s starts.", cmd.Short, strings.Replace(path, cmd.Root().Name(), LabProgram, 1), LabProgram,
			cmd.Root().Name())
	}
	for _, sub := range cmd.Commands() {
		if sub.Name() == "completion" { // packages install what it prints
			cmd.RemoveCommand(sub)
			continue
		}
		if !sub.IsAvailableCommand() || sub.Name() == "help" {
			continue
		}
		if err := writeManual(sub, dir); err != nil {
			return err
		}
	}
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	page, err := os.Create(filepath.Join(dir, name+".1"))
	if err != nil {
		return err
	}
	defer page.Close()
	header := &doc.GenManHeader{Section: "1", Manual: "numalet", Source: version.Get().String()}
	if err := doc.GenMan(cmd, header, page); err != nil {
		return fmt.Errorf("write the manual page of %s: %w", name, err)
	}
	return page.Close()
}
