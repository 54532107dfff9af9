package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Binary builds numalet once per test process and returns its path. Main removes it.
var Binary = sync.OnceValues(func() (string, error) {
	if given := os.Getenv("NUMALET_BINARY"); given != "" {
		return given, nil
	}
	if err := os.MkdirAll(binaryDir(), 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(binaryDir(), "numalet")
	build := exec.Command("go", "build", "-o", path, "github.com/numalet/numalet/cmd/numalet")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build numalet: %w\n%s", err, out)
	}
	return path, nil
})

func binaryDir() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("numalet-bin-%d", os.Getpid()))
}

// Main is for TestMain of packages that use Binary: it runs the tests, removes the binary and ends
// the process.
func Main(m *testing.M) {
	code := m.Run()
	if err := os.RemoveAll(binaryDir()); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}
