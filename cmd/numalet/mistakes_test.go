package main

import (
	"strings"
	"testing"

	"github.com/numalet/numalet/cmd/internal/cli"
)

// A command that there is not is an error at every depth, also with --help and of help, and what was meant is
// suggested.
func TestMistypedCommands(t *testing.T) {
	for words, want := range map[string]string{
		"":                           "",
		"--help":                     "",
		"explain node":               "",
		"explain shop/web":           "",
		"help explain":               "",
		"help plugin check":          "",
		"device list example.com/gp": "",
		"device --help":              "",
		"device":                     "",
		"plugin sim xyzzy":           "", // the other program knows
		"bench topolgy":              "",
		"completion bash":            "",
		"__complete devcie":          "",
		"--config /etc/x":            "",
		"xyzzy":                      `numalet has no "xyzzy": numalet --help lists what it has`,
		"xyzzy --help":               `numalet has no "xyzzy": numalet --help lists what it has`,
		"help xyzzy":                 `numalet has no "xyzzy": numalet --help lists what it has`,
		"help device xyzzy":          `numalet device has no "xyzzy": numalet device --help lists what it has`,
		"explian node":               `numalet has no "explian": did you mean explain? numalet --help lists what it has`,
		"device lst":                 `numalet device has no "lst": did you mean list? numalet device --help lists what it has`,
		"device lst --help":          `numalet device has no "lst": did you mean list? numalet device --help lists what it has`,
		"plugin chek":                `numalet plugin has no "chek": did you mean check? numalet plugin --help lists what it has`,
		"completion bsh":             `numalet completion has no "bsh": did you mean bash or fish or zsh? numalet completion --help lists what it has`,
	} {
		cmd := newCommand(func([]string) error { return nil })
		got := ""
		if err := cli.CheckCommand(cmd, strings.Fields(words)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %s, want %q", words, got, want)
		}
	}
}
