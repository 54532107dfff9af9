package scratch

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// File is the path of a file of this module, where the tests run that it was built for. A test program
// may know only the name of its own source (go build -trimpath).
func File(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		module, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(module), "module github.com/numalet/numalet\n") {
			return filepath.Join(dir, name)
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("the working directory is not below the module's")
		}
		dir = filepath.Dir(dir)
	}
}

// Build is the folder with what a script in test/tools builds, which may take minutes the first
// time. The test is left out where that cannot be.
func Build(t testing.TB, what, script string, args ...string) string {
	t.Helper()
	cmd := exec.Command(File(t, "test/tools/"+script), args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		LeaveOut(t, fmt.Sprintf("%s cannot be built: %v", what, err))
	}
	return strings.TrimSpace(string(out))
}

// LeaveOut skips the test, or fails it in CI, where nothing may be left out.
func LeaveOut(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip("left out: " + why)
}
