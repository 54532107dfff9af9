package playground

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// plugin is a device plugin in a process of its own.
type plugin struct {
	resource string
	binary   string // "" is our own
	args     []string
}

// offer is a plugin for the resource with a control socket in the playground's directory.
func (p *Playground) offer(resource string, args ...string) plugin {
	_, name, _ := strings.Cut(resource, "/")
	return plugin{resource: resource, args: append([]string{
		"plugin", "sim", "--resource=" + resource,
		"--dir=" + filepath.Join(p.dir, "root", "device-plugins"),
		"--control=" + filepath.Join(p.dir, name+"-control.sock"),
	}, args...)}
}

// run is the process's life. A plugin that ends by itself, crashed by hand for example, is left
// ended: what the agent makes of that is what people want to see.
func (o plugin) run(ctx context.Context, log io.Writer) error {
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, cmp.Or(o.binary, executable), o.args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	// It must not outlive a playground that is killed, and Ctrl-C is for the playground.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the device plugin of %s: %w", o.resource, err)
	}
	if err := cmd.Wait(); err != nil && ctx.Err() == nil {
		fmt.Fprintf(log, "the device plugin of %s has ended: %v\n", o.resource, err)
	}
	return nil
}

func (o plugin) isNamedIn(message string) bool { return strings.Contains(message, o.resource) }
