// Package child runs servers as child processes, each with a log of its own.
package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/numalet/numalet/topology/files"
)

// stopTimeout is how long a server may take to exit after SIGTERM.
const stopTimeout = 10 * time.Second

// Server is a program that runs until it is stopped. Start comes first, and again when it has exited.
type Server struct {
	Program string
	Args    []string
	Env     []string // beside that of this process
	Log     string   // a file that its output is appended to
	// Memory is how many bytes it may have of its own; 0: as many as there are.
	Memory uint64
	// Outlives: it goes on when this process is killed. Otherwise it dies with it.
	Outlives bool

	cmd    *exec.Cmd
	exited chan struct{}
}

// Name is the program's.
func (s *Server) Name() string { return filepath.Base(s.Program) }

// Start starts it and does not wait until it is ready.
func (s *Server) Start() error {
	log, err := os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(s.Program, s.Args...)
	cmd.Env = append(os.Environ(), s.Env...)
	if s.Memory > 0 {
		cmd.Env = append(cmd.Env, fmt.Sprintf("GOMEMLIMIT=%d", s.Memory/4*3))
	}
	cmd.Stdout, cmd.Stderr = log, log
	// A group of its own: Ctrl-C at the terminal is for us, who then stop it in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if !s.Outlives {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", s.Name(), err)
	}
	if s.Memory > 0 {
		limit := unix.Rlimit{Cur: s.Memory, Max: s.Memory}
		if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_DATA, &limit, nil); err != nil {
			return errors.Join(fmt.Errorf("limit the memory of %s: %w", s.Name(), err),
				cmd.Process.Kill(), cmd.Wait())
		}
	}
	exited := make(chan struct{})
	s.cmd, s.exited = cmd, exited
	go func() {
		defer close(exited)
		_ = cmd.Wait() // how it went is in its log
	}()
	return nil
}

// Exited is closed when it has exited and been waited for.
func (s *Server) Exited() <-chan struct{} { return s.exited }

// Stop ends it, if it runs: in order as far as it does that soon.
func (s *Server) Stop() {
	_ = s.Signal(syscall.SIGTERM) // an error means that it has exited
	select {
	case <-s.exited:
	case <-time.After(stopTimeout):
		s.Kill()
	}
}

// Kill ends it as an accident would, and returns when it has exited.
func (s *Server) Kill() {
	_ = s.Signal(syscall.SIGKILL) // likewise
	<-s.exited
}

// Signal sends a signal: SIGSTOP stops it from running, as on a machine that hangs, until SIGCONT.
func (s *Server) Signal(signal syscall.Signal) error { return s.cmd.Process.Signal(signal) }

// Died is an error with the end of its log if it has exited.
func (s *Server) Died() error {
	select {
	case <-s.exited:
		return fmt.Errorf("%s exited; the end of its log, %s:\n%s", s.Name(), s.Log,
			files.Tail(s.Log, 10))
	default:
		return nil
	}
}
