package test

import (
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

// onTerminal runs the program on a terminal that shows its output and answers nothing.
func onTerminal(t *testing.T, program string, args ...string) string {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	defer screen.Close()
	if err := unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
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
