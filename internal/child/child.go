// Package child runs servers as child processes, each with its own log.
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

	"github.com/numalet/numalet/internal/files"
)

// stopTimeout bounds a server's exit after SIGTERM.
const stopTimeout = 10 * time.Second

// Server is a program that runs until it is stopped. Call Start first, and again only after it has
// exited.
type Server struct {
	Program string
	Args    []string
	Env     []string // in addition to this process's
	Log     string   // the file to which its output is appended
	// Memory limits its data in bytes (RLIMIT_DATA); 0: no limit.
	Memory uint64
	// Outlives: it survives a kill of this process. Otherwise it dies with it.
	Outlives bool

	cmd    *exec.Cmd
	exited chan struct{}
	how    error // read it once exited is closed
}

// Name returns the program's name.
func (s *Server) Name() string { return filepath.Base(s.Program) }

// Start starts the program and does not wait until it is ready.
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
	// Its own process group: Ctrl-C at the terminal reaches only us, and we stop it in order.
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
		s.how = cmd.Wait()
	}()
	return nil
}

// Exited returns a channel that is closed after the program exited and was waited for.
func (s *Server) Exited() <-chan struct{} { return s.exited }

// How returns the error with which the program exited, once it has.
func (s *Server) How() error { return s.how }

// PID returns the process's id.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Stop sends SIGTERM, and kills the program if it has not exited after stopTimeout.
func (s *Server) Stop() {
	_ = s.Signal(syscall.SIGTERM) // an error means that it has exited
	select {
	case <-s.exited:
	case <-time.After(stopTimeout):
		s.Kill()
	}
}

// Kill kills the program and returns when it has exited.
func (s *Server) Kill() {
	_ = s.Signal(syscall.SIGKILL) // likewise
	<-s.exited
}

// Signal sends a signal. SIGSTOP simulates a hang, until SIGCONT.
func (s *Server) Signal(signal syscall.Signal) error { return s.cmd.Process.Signal(signal) }

// Died returns an error with the end of the log if the program has exited.
func (s *Server) Died() error {
	select {
	case <-s.exited:
		return fmt.Errorf("%s exited; the end of its log, %s:\n%s", s.Name(), s.Log,
			files.Tail(s.Log, 10))
	default:
		return nil
	}
}
