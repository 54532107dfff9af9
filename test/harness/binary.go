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

// programs builds numalet, numalet-lab and numalet-gpu once per test process, if no folder with
// them is given, and returns their folder. Main removes it. They have the race detector if the test
// program has it, and are always static, because images are made of them; numalet-gpu, without cgo,
// only knows machines described as data.
var programs = sync.OnceValues(func() (string, error) {
	if given := os.Getenv("NUMALET_PROGRAMS"); given != "" {
		return given, nil
	}
	if err := os.MkdirAll(programsDir(), 0o755); err != nil {
		return "", err
	}
	// With cgo it would look for NVIDIA's library.
	if err := compile("CGO_ENABLED=0", nil, "numalet-gpu"); err != nil {
		return "", err
	}
	if raced {
		return programsDir(), compile("CGO_ENABLED=1", []string{"-race", "-tags=netgo,osusergo",
			"-ldflags=-linkmode=external -extldflags=-static"}, "numalet", "numalet-lab")
	}
	return programsDir(), compile("CGO_ENABLED=0", nil, "numalet", "numalet-lab")
})

func compile(cgo string, flags []string, names ...string) error {
	args := append([]string{"build", "-o", programsDir() + "/"}, flags...)
	for _, name := range names {
		args = append(args, "github.com/numalet/numalet/cmd/"+name)
	}
	build := exec.Command("go", args...)
	build.Env = append(os.Environ(), cgo)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", strings.Join(names, " and "), err, out)
	}
	return nil
}

func programsDir() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("numalet-bin-%d", os.Getpid()))
}

// Binary returns the path of numalet. Beside it is numalet-lab, which it starts.
func Binary() (string, error) { return program("numalet") }

// Lab returns the path of numalet-lab.
func Lab() (string, error) { return program("numalet-lab") }

func program(name string) (string, error) {
	dir, err := programs()
	return filepath.Join(dir, name), err
}

// Programs puts numalet, numalet-lab and numalet-gpu into a folder.
func Programs(t testing.TB, dir string) {
	t.Helper()
	for _, name := range []string{"numalet", "numalet-lab", "numalet-gpu"} {
		built, err := program(name)
		if err != nil {
			t.Fatal(err)
		}
		CopyProgram(t, built, filepath.Join(dir, name))
	}
}

// GPUPlugin returns the path of numalet-gpu.
func GPUPlugin(t testing.TB) string {
	t.Helper()
	path, err := program("numalet-gpu")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Main is for TestMain of packages that use the programs. It runs the tests, then last, removes the
// programs and ends the process. It also reports races found in processes that belong to no Node.
func Main(m *testing.M, last ...func()) {
	if err := shareRaceOptions(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	for _, do := range last {
		do()
	}
	if found := races(programsDir()); found != "" {
		fmt.Fprintf(os.Stderr, "FAIL: the race detector found this in commands:\n%s\n", found)
		code = max(code, 1)
	}
	if err := os.RemoveAll(programsDir()); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// shareRaceOptions makes all processes that the tests start report their races in programsDir, unless
// they get other options.
func shareRaceOptions() error {
	for _, option := range raceOptions(programsDir()) {
		if err := os.MkdirAll(programsDir(), 0o755); err != nil {
			return err
		}
		name, value, _ := strings.Cut(option, "=")
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
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
