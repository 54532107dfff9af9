package hostinfo

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/numalet/numalet/internal/files"
)

// What stands in the place of a directory of sockets is moved aside. Where pods' volumes are it stays, and
// the error says what to do.
func TestMakeDirs(t *testing.T) {
	for name, moves := range map[string]bool{"plugins_registry": true, "device-plugins": true,
		"pod-resources": true, "checkpoints": true, "pods": false, "plugins": false, "logs": false} {
		for what, put := range map[string]func(path string) error{
			"file":          func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) },
			"dangling link": func(path string) error { return os.Symlink("none", path) },
		} {
			root := t.TempDir()
			path := filepath.Join(root, name)
			if err := put(path); err != nil {
				t.Fatal(err)
			}
			moved, err := MakeDirs(root, filepath.Join(root, "logs"), "")
			aside, _ := filepath.Glob(path + ".corrupt-*")
			if moves && (err != nil || len(moved) != 1 || !errors.Is(moved[0], files.ErrUnusable) ||
				len(aside) != 1) {
				t.Errorf("a %s is %s: %v, %v; aside: %v", what, name, moved, err, aside)
			}
			if !moves && (err == nil || !strings.Contains(err.Error(), path) ||
				!strings.Contains(err.Error(), "move away") || len(aside) > 0) {
				t.Errorf("a %s is %s: %v, %v; aside: %v", what, name, moved, err, aside)
			}
		}
	}
	root, other := t.TempDir(), t.TempDir()
	if err := os.Symlink(other, filepath.Join(root, "pods")); err != nil {
		t.Fatal(err)
	}
	if moved, err := MakeDirs(root, "", ""); err != nil || len(moved) > 0 {
		t.Errorf("a link to a directory: %v, %v", moved, err)
	}
}
