// Package scratch names what a test has on the machine for itself, beside other tests, playgrounds
// and agents. All that test/run.sh runs is found by the TMPDIR that it sets, and removed if a test
// could not do that.
package scratch

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// longest is the longest path of the directory for temporary files. test/run.sh makes one of that
// length; if TMPDIR is longer, tests use /tmp.
const longest = len("/tmp/nXXXX")

// Dir makes an empty directory, which is removed with all that is in it when the test ends. Its
// path is short enough for sockets below it, as those of testing.T, with the names of tests, are
// not.
func Dir(t testing.TB) string {
	t.Helper()
	parent := os.TempDir()
	if len(parent) > longest {
		parent = "/tmp"
	}
	for {
		dir := filepath.Join(parent, fmt.Sprintf("n%04x", rand.IntN(1<<16)))
		err := os.Mkdir(dir, 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		})
		return dir
	}
}

// Cgroup is a path below the root of cgroups that no other process uses, for one purpose at a time.
func Cgroup(purpose string) string {
	return fmt.Sprintf("/%s-%d-%s", filepath.Base(os.TempDir()), os.Getpid(), purpose)
}
