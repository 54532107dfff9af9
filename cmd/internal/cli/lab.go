package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// LabProgram has the commands that need more than an agent does: simulators, benchmarks and
// playgrounds. It is another program, so that a node's agent is not linked with them.
const LabProgram = "numalet-lab"

// LabShort has one line about each command of LabProgram, by its path without the program's name.
var LabShort = map[string]string{
	"playground": "Start an agent with a simulated machine, runtime and devices, and watch it place pods",
	"rig":        "Compare policies: let thousands of pods come and go on any machine",
	"bench":      "The rig by its former name, bench topology",
	"nodes":      "Be many nodes of a cluster, without hardware",
	"cri":        "Tools for the container runtime interface",
	"plugin sim": "Run a device plugin with invented devices",
	"plugin eni": "Run the device plugin for network interfaces",
}

// Lab stands for the command of LabProgram at that path: start starts that program, with the words
// that follow "numalet".
func Lab(path string, start func(words []string) error) *cobra.Command {
	words := strings.Fields(path)
	cmd := &cobra.Command{Use: words[len(words)-1], Short: LabShort[path], DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			return start(slices.Concat(words, args))
		}}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		if err := start(append(slices.Clone(words), "--help")); err != nil {
			cmd.PrintErrln(err)
		}
	})
	return cmd
}

// CompletesLab reports whether the words of a call ask for completions of a command of LabProgram.
func CompletesLab(root *cobra.Command, words []string) bool {
	if len(words) < 3 || words[0] != cobra.ShellCompRequestCmd && words[0] != cobra.ShellCompNoDescRequestCmd {
		return false
	}
	cmd, _, err := root.Find(words[1 : len(words)-1])
	return err == nil && cmd.DisableFlagParsing
}

// StartLab replaces this process by LabProgram, which is in this program's folder or in PATH. It
// returns only if that fails.
func StartLab(words []string) error {
	path, err := findLab()
	if err != nil {
		return err
	}
	argv := append([]string{os.Args[0]}, words...) // what it says to type is what was typed
	return fmt.Errorf("start %s: %w", path, syscall.Exec(path, argv, os.Environ()))
}

func findLab() (string, error) {
	own, err := os.Executable()
	if err != nil {
		return "", err
	}
	for _, name := range []string{filepath.Join(filepath.Dir(own), LabProgram), LabProgram} {
		// A name without a folder is looked for in PATH.
		path, err := exec.LookPath(name)
		if err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("this command is in %s, which is neither beside %s nor in PATH: install that program "+
		"too (\"make build\" builds both)", LabProgram, own)
}
