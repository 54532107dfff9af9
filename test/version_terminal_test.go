package test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/numalet/numalet/test/harness"
)

// TestVersionOnSilentTerminal: a serial console does not answer questions about its colours. A
// command that draws nothing asks nothing, and so does not wait for an answer.
func TestVersionOnSilentTerminal(t *testing.T) {
	t.Parallel()
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	asKubelet := filepath.Join(t.TempDir(), "kubelet")
	if err := os.Symlink(binary, asKubelet); err != nil {
		t.Fatal(err)
	}
	// kubeadm runs the second command.
	for program, want := range map[string]string{
		binary:    `^numalet v1\.\d+\.\d+\+numalet\.[-.0-9A-Za-z]+\r\n$`,
		asKubelet: `^\s*Kubernetes v(\d+\.\d+\.\d+)([-0-9a-zA-Z_\.+]*)?\s*$`,
	} {
		if got := onTerminal(t, program, "--version"); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%s --version says %q, want %s", program, got, want)
		}
	}
}

// openTerminal makes a terminal: what is written to the screen was typed, and what is read from it is
// shown.
func openTerminal(t *testing.T) (screen, terminal *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	t.Cleanup(func() { screen.Close() })
	var number int
	control(t, screen, func(fd int) (err error) {
		if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		}
		return err
	})
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	return screen, terminal
}

// control does something with the file's descriptor, and leaves it as it is: Fd would have reads go on
// beyond Close.
func control(t *testing.T, f *os.File, do func(fd int) error) {
	t.Helper()
	raw, err := f.SyscallConn()
	if err == nil {
		var failed error
		err = raw.Control(func(fd uintptr) { failed = do(int(fd)) })
		err = errors.Join(err, failed)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// onTerminal runs the program on a terminal that shows its output and answers nothing.
func onTerminal(t *testing.T, program string, args ...string) string {
	t.Helper()
	screen, terminal := openTerminal(t)
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	terminal.Close()
	shown, err := io.ReadAll(screen)
	if len(shown) == 0 {
		t.Fatalf("nothing is shown: %v", err)
	}
	return string(shown)
}
