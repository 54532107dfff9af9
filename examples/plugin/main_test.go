package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/numalet/numalet/deviceplugin/check"
)

// TestMain lets this executable be the plugin, so that the check can kill it.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "--dir") {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestPlugin(t *testing.T) {
	folder := t.TempDir()
	say := func(file, text string) error {
		return os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600)
	}
	for _, file := range []string{"a", "b", "c"} {
		if err := say(file, "fine"); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	report := check.Test(t, check.Config{
		Command: fmt.Sprintf("%s --dir={dir} --widgets=%s", self, folder),
		Levers: map[check.Lever]func(context.Context) error{
			check.Sicken: func(context.Context) error { return say("a", "broken") },
			check.Cure:   func(context.Context) error { return say("a", "fine") },
			check.Return: func(context.Context) error { return say("b", "fine") },
			check.Vanish: func(context.Context) error {
				return os.Remove(filepath.Join(folder, "b"))
			},
		},
	})
	if n := report.Count(check.Warning); n > 0 || report.Resource != resource {
		t.Errorf("of %s there are %d warnings", report.Resource, n)
	}
}

// The page for authors shows the plugin as it is.
func TestPageShowsThePlugin(t *testing.T) {
	code, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/writing-device-plugins.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```go\n"+string(code)+"```\n") {
		t.Error("docs/writing-device-plugins.md does not have examples/plugin/main.go as it is; " +
			"copy it there")
	}
}
