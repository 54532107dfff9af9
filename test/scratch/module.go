package scratch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// File is the path of a file of this module, where the tests run that it was built for. What a test
// program knows of its own source may be a name only (go build -trimpath).
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
