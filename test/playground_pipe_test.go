package test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/numalet/numalet/test/harness"
)

// If the reader of its output goes away, as head does, a playground ends and leaves nothing behind,
// whether or not there is more to print.
func TestPlaygroundInPipe(t *testing.T) {
	t.Parallel()
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, examples := range [][]string{nil, {"--examples=none"}} {
		ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, binary, append([]string{"playground"}, examples...)...)
		dir := t.TempDir()
		cmd.Env = append(os.Environ(), "TMPDIR="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range 3 {
			if !lines.Scan() {
				t.Fatalf("it ended before it had said three lines: %v", lines.Err())
			}
		}
		_ = out.Close()
		if err := cmd.Wait(); err != nil || said.Len() > 0 {
			t.Errorf("%v: %v: %s", examples, err, said.String())
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%v: %v, %v are left", examples, err, left)
		}
	}
}

// The playground also shows the problems of a plugin, because the plugin's author looks there.
func TestPlaygroundTellsOfPlugins(t *testing.T) {
	t.Parallel()
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "playground", "--examples=none")
	dir, err := os.MkdirTemp("", "nl-") // a socket's path has little room
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // its output is not read to the end
	})
	socket := filepath.Join(dir, "*/root/device-plugins/kubelet.sock")
	harness.Eventually(t, "plugins can register", func() error {
		if found, _ := filepath.Glob(socket); len(found) == 0 {
			return fmt.Errorf("there is no %s", socket)
		}
		return nil
	})
	found, _ := filepath.Glob(socket)
	p := &wrongPlugin{devices: goodDevices()}
	p.devices[0].ID = ""
	p.begin(t, filepath.Dir(found[0]), "nameless.sock", "example.com/nameless")
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		text := lines.Text()
		if strings.Contains(text, "example.com/nameless: plugin on nameless.sock: its list") &&
			strings.Contains(text, "give every device an id") {
			return
		}
	}
	t.Errorf("the playground ended without a word of the plugin: %v", lines.Err())
}
