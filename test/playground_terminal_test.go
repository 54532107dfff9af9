package test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/numalet/numalet/test/harness"
)

// shown holds what a terminal was told to show so far.
type shown struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *shown) follow(from *os.File) {
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		s.mu.Lock()
		s.text.Write(buffer[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// has returns an error until the text was shown.
func (s *shown) has(text string) func() error {
	return func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if strings.Contains(s.text.String(), text) {
			return nil
		}
		return fmt.Errorf("%q is not shown, but %q", text, s.text.String())
	}
}

// TestPlaygroundOnTerminal: the table is shown, and when the user quits or closes the terminal the playground
// ends and leaves nothing behind. What keys show is tested with a model of the screen: a terminal is only
// sent what differs from before.
func TestPlaygroundOnTerminal(t *testing.T) {
	t.Parallel()
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	for name, end := range map[string]func(screen *os.File) error{
		"quit":   func(screen *os.File) error { _, err := screen.WriteString("q"); return err },
		"closed": (*os.File).Close,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			screen, terminal := openTerminal(t)
			control(t, screen, func(fd int) error {
				return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80})
			})
			dir := shortTemp(t)
			cmd := exec.CommandContext(t.Context(), binary, "playground")
			cmd.Env = append(os.Environ(), "TERM=xterm-256color", "TMPDIR="+dir)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			terminal.Close()
			said := &shown{}
			go said.follow(screen)
			harness.Eventually(t, "the table is shown", said.has("CONTAINER"))
			if err := end(screen); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("it ended with %v", err)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("%v, %v are left", err, left)
			}
		})
	}
}

// shortTemp returns a directory with a short name: a socket's path has little room.
func shortTemp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "nl-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// TestPlaygroundRefuses: what is wrong with its flags it says, and leaves nothing behind.
func TestPlaygroundRefuses(t *testing.T) {
	t.Parallel()
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := shortTemp(t)
	write := func(name, text string) string {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	const kind = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	for want, args := range map[string][]string{
		"no such file":           {"--topology-from=/none/machine.yaml"},
		`"dgxh101"`:              {"--gpu=dgxh101"},
		"--cluster too":          {"--driver=./mine"},
		"there is no manifest":   {"--examples=/none"},
		"open /none/config.yaml": {"--config=/none/config.yaml"},
		"the playground sets staticPodPath itself": {"--config", write("a.yaml", kind+"staticPodPath: /tmp\n")},
		"evictionHerd":                    {"--config", write("b.yaml", kind+"evictionHerd: {}\n")},
		"run test/tools/build.sh cluster": {"--cluster=/none"},
		"containerd in /none":             {"--runtime=containerd", "--tools=/none"},
		"leave out --topology-from":       {"--gpu=dgxh100", "--topology-from=fixture:eight-node"},
		"unknown flag":                    {"--gpus=2"},
	} {
		cmd := exec.CommandContext(t.Context(), binary, append([]string{"playground"}, args...)...)
		cmd.Env = append(os.Environ(), "TMPDIR="+dir)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%q: %v: %s", args, err, out)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%q: %v, %v are left", args, err, left)
		}
	}
}

// startPlayground starts one, which ends with the test and must leave nothing then, and returns the lines
// that it prints.
func startPlayground(t *testing.T, args ...string) (*exec.Cmd, <-chan string) {
	t.Helper()
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := shortTemp(t)
	cmd := exec.Command(binary, append([]string{"playground"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 10_000) // more than a test waits for
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(lines)
		for in := bufio.NewScanner(out); in.Scan(); {
			lines <- in.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		<-read
		if err := cmd.Wait(); err != nil {
			t.Errorf("it ended with %v", err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%v, %v are left", err, left)
		}
	})
	return cmd, lines
}

// nextLine returns the next line that is printed.
func nextLine(t *testing.T, lines <-chan string) string {
	t.Helper()
	select {
	case line, more := <-lines:
		if !more {
			t.Fatal("the playground has ended")
		}
		return line
	case <-time.After(harness.Patience):
		t.Fatal("nothing is printed")
	}
	return ""
}

// TestPlaygroundInJSON: without --once each change is an object in a line, until the playground is told
// to end.
func TestPlaygroundInJSON(t *testing.T) {
	t.Parallel()
	cmd, lines := startPlayground(t, "-o", "json")
	for {
		var change struct {
			Time      string
			Container *struct {
				Pod, Container, CPUs string
				Exclusive            bool
			}
		}
		text := nextLine(t, lines)
		if err := json.Unmarshal([]byte(text), &change); err != nil || change.Time == "" {
			t.Fatalf("%v: %s", err, text)
		}
		if c := change.Container; c != nil && c.Pod == "train-node" && c.Exclusive && c.CPUs != "" {
			break
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// TestPlaygroundShowsCalls: an author's plugin is started, and what it and the agent say to each other, what
// it prints and how it ends is shown.
func TestPlaygroundShowsCalls(t *testing.T) {
	t.Parallel()
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	control := filepath.Join(shortTemp(t), "ctl")
	_, lines := startPlayground(t, "--plugin", binary+" plugin sim --resource=example.com/widget --devices=2 "+
		"--dir={dir} --control="+control)
	await := func(parts ...string) {
		t.Helper()
		for !hasAll(nextLine(t, lines), parts) {
		}
	}
	await("the plugin is started: ", "--dir=/")
	await("plugin -> agent: Register {", "example.com/widget")
	await("plugin -> agent: ListAndWatch {", "widget-1")
	if out, err := exec.CommandContext(t.Context(), binary, "plugin", "sim", "ctl", "--control", control,
		"crash").CombinedOutput(); err != nil {
		t.Logf("%v: %s", err, out) // it may end before it has answered
	}
	await("the plugin: it ended (exit status 1)")
}

// TestPlaygroundCtl: by an order the node is short of memory, and the machine goes down.
func TestPlaygroundCtl(t *testing.T) {
	t.Parallel()
	cmd, lines := startPlayground(t)
	dir := ""
	for _, kv := range cmd.Env {
		if at, is := strings.CutPrefix(kv, "TMPDIR="); is {
			dir = at
		}
	}
	order := func(args ...string) {
		t.Helper()
		ctl := exec.CommandContext(t.Context(), cmd.Path, append([]string{"playground", "ctl"}, args...)...)
		ctl.Env = append(os.Environ(), "TMPDIR="+dir)
		if out, err := ctl.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
	}
	await := func(parts ...string) {
		t.Helper()
		for !hasAll(nextLine(t, lines), parts) {
		}
	}
	await("default/train-node trainer  Running")
	order("memory", "95%")
	await("MemoryPressure: memory.available is below ")
	order("memory", "usual")
	order("shutdown")
	await("default/train-node trainer  Failed", "Terminated")
}

func hasAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}
