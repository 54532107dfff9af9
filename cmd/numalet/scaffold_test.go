package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// New modules are written into a directory of their name, which the answer lists, with the step that
// builds them.
func TestNewModules(t *testing.T) {
	for _, tc := range []struct{ kind, flag, serves string }{
		{"plugin", "--resource", "vendor.com/widget"}, {"driver", "--driver", "widgets.vendor.com"},
	} {
		dir := filepath.Join(t.TempDir(), "widgets")
		out, err := run(t, tc.kind, "new", dir, tc.flag, tc.serves, "--numalet", "../..")
		if err != nil || !strings.Contains(out, filepath.Join(dir, "main_test.go")+"\n") ||
			!strings.Contains(out, "make -C "+dir) {
			t.Errorf("%s: %v\n%s", tc.kind, err, out)
		}
		module, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err != nil || !strings.HasPrefix(string(module), "module example.com/widgets\n\ngo 1.") ||
			!strings.Contains(string(module), "replace github.com/numalet/numalet => /") {
			t.Errorf("%s: %v\n%s", tc.kind, err, module)
		}
		for args, want := range map[string]string{
			dir: "exists: choose another name", "": "give the name of the new " + tc.kind,
		} {
			words := append([]string{tc.kind, "new"}, strings.Fields(args)...)
			if _, err := run(t, words...); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s new %s: %v, want %q", tc.kind, args, err, want)
			}
		}
	}
	if _, err := run(t, "driver", "claim"); err == nil || !strings.Contains(err.Error(), "name the driver") {
		t.Error(err)
	}
	_, err := run(t, "driver", "claim", checkedDriver, "--kubeconfig", "/nowhere/config")
	if err == nil || !strings.Contains(err.Error(), "name a kubeconfig with --kubeconfig") {
		t.Error(err)
	}
}
