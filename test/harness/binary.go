package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Binary builds numalet once per test process and returns its path. Main removes it. It has the
// race detector if the test program has it, and is always static, because images are made of it.
var Binary = sync.OnceValues(func() (string, error) {
	if given := os.Getenv("NUMALET_BINARY"); given != "" {
		return given, nil
	}
	if err := os.MkdirAll(binaryDir(), 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(binaryDir(), "numalet")
	args, cgo := []string{"build", "-o", path}, "CGO_ENABLED=0"
	if raced {
		cgo = "CGO_ENABLED=1"
		args = append(args, "-race", "-tags=netgo,osusergo",
			"-ldflags=-linkmode=external -extldflags=-static")
	}
	build := exec.Command("go", append(args, "github.com/numalet/numalet/cmd/numalet")...)
	build.Env = append(os.Environ(), cgo)
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build numalet: %w\n%s", err, out)
	}
	return path, nil
})

func binaryDir() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("numalet-bin-%d", os.Getpid()))
}

// Main is for TestMain of packages that use Binary. It runs the tests, then last, removes the
// binary and ends the process. It also reports races found in processes that belong to no Node.
func Main(m *testing.M, last ...func()) {
	if err := shareRaceOptions(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	for _, do := range last {
		do()
	}
	if found := races(binaryDir()); found != "" {
		fmt.Fprintf(os.Stderr, "FAIL: the race detector found this in commands:\n%s\n", found)
		code = max(code, 1)
	}
	if err := os.RemoveAll(binaryDir()); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// shareRaceOptions makes all processes that the tests start report their races in binaryDir, unless
// they get other options.
func shareRaceOptions() error {
	for _, option := range raceOptions(binaryDir()) {
		if err := os.MkdirAll(binaryDir(), 0o755); err != nil {
			return err
		}
		name, value, _ := strings.Cut(option, "=")
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}

// gpuPlugin builds the GPU plugin once per test process and returns its path; see Binary.
var gpuPlugin = sync.OnceValues(func() (string, error) {
	if given := os.Getenv("NUMALET_GPU_BINARY"); given != "" {
		return given, nil
	}
	if err := os.MkdirAll(binaryDir(), 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(binaryDir(), "numalet-gpu")
	build := exec.Command("go", "build", "-o", path, "github.com/numalet/numalet/cmd/numalet-gpu")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build numalet-gpu: %w\n%s", err, out)
	}
	return path, nil
})

// GPUPlugin puts the GPU plugin into a folder. It is built without cgo, so it only knows machines
// described as data.
func GPUPlugin(t testing.TB, dir string) (path string) {
	t.Helper()
	built, err := gpuPlugin()
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "numalet-gpu")
	CopyProgram(t, built, path)
	return path
}

// CopyProgram links a program to another place, or copies it to another file system.
func CopyProgram(t testing.TB, from, to string) {
	t.Helper()
	if os.Link(from, to) == nil {
		return
	}
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}
