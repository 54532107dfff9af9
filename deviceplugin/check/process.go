package check

import (
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/numalet/numalet/internal/oneline"
)

// Process is a plugin that a command starts in its own process group.
type Process struct {
	command string
	output  io.Writer
	life
	cmd *exec.Cmd // under its lock
}

// NewProcess returns a plugin that does not run. output gets what it writes.
func NewProcess(command string, output io.Writer) *Process {
	return &Process{command: command, output: output, life: life{pulse: newPulse()}}
}

// mostWords bounds the plugin's recorded last words: a panic comes with its stack.
const mostWords = 32 << 10

// Start starts the command, unless the plugin runs; {dir} and {registry} in the command stand for
// the directories. The shell execs it, so that signals reach the plugin itself.
func (p *Process) Start(dirs Dirs) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runsLocked() {
		return nil
	}
	line := placed(p.command, dirs)
	words := &tail{}
	cmd := exec.Command("/bin/sh", "-c", "exec "+line)
	cmd.Stdout = io.MultiWriter(words, p.output)
	cmd.Stderr = cmd.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second // for children that hold its output open
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the plugin: %w", err)
	}
	p.cmd = cmd
	p.beginLocked(func() *Ending {
		err := cmd.Wait()
		return &Ending{err: err, words: words.String()}
	})
	return nil
}

// placed returns text with the directories in place of {dir} and {registry}.
func placed(text string, dirs Dirs) string {
	return strings.NewReplacer("{dir}", dirs.Plugins, "{registry}", dirs.Registry).Replace(text)
}

// Stop asks the plugin to end, and reports whether it did in time; else it is killed.
func (p *Process) Stop(most time.Duration) bool {
	cmd, done := p.running()
	if cmd == nil {
		return true
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended meanwhile
	select {
	case <-done:
	case <-time.After(most):
		p.Kill()
		return false
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it left behind
	return true
}

// Kill ends the plugin without warning.
func (p *Process) Kill() {
	cmd, done := p.running()
	if cmd == nil {
		return
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended meanwhile
	<-done
}

// Ended returns a channel that is closed when the plugin that was started last has ended; nil before.
func (p *Process) Ended() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// running returns the running command and a channel that is closed at its end; nil if none runs.
func (p *Process) running() (*exec.Cmd, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.runsLocked() {
		return nil, nil
	}
	return p.cmd, p.done
}

// tail keeps the last mostWords bytes.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if more := len(t.text) - mostWords; more > 0 {
		t.text = append(t.text[:0], t.text[more:]...)
	}
	return len(p), nil
}

// String returns the reason of a panic if there was one, else the last lines.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(t.text)), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return oneline.Of(strings.Join(lines[i:min(i+2, len(lines))], " / "))
		}
	}
	return oneline.Of(strings.Join(lines[max(0, len(lines)-3):], " / "))
}
