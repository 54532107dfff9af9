package controlplane

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/numalet/numalet/topology/files"
)

// stopTimeout is how long a server may take to exit after SIGTERM.
const stopTimeout = 10 * time.Second

// process is a server with a log. It dies with the process that started it.
type process struct {
	program string
	args    []string
	log     string

	cmd    *exec.Cmd
	exited chan struct{} // closed when it has exited and been waited for
}

func (p *process) name() string { return filepath.Base(p.program) }

func (p *process) start() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.program, p.args...)
	cmd.Stdout, cmd.Stderr = log, log
	// A group of its own: Ctrl-C at the terminal is for us, who then stop it in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name(), err)
	}
	exited := make(chan struct{})
	p.cmd, p.exited = cmd, exited
	go func() {
		defer close(exited)
		_ = cmd.Wait() // how it went is in its log
	}()
	return nil
}

// stop ends it, if it runs: in order as far as it does that soon.
func (p *process) stop() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has exited
	select {
	case <-p.exited:
	case <-time.After(stopTimeout):
		p.kill()
	}
}

// kill ends it as an accident would.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // likewise
	<-p.exited
}

// died is an error with the end of its log if it has exited.
func (p *process) died() error {
	select {
	case <-p.exited:
		return fmt.Errorf("%s exited; the end of its log, %s:\n%s", p.name(), p.log,
			files.Tail(p.log, 10))
	default:
		return nil
	}
}
