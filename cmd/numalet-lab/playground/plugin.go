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

// plugin is a device plugin in its own process.
type plugin struct {
	resource string
	driver   string // the driver's name if the plugin is one of claims
	binary   string // empty for numalet itself
	args     []string
}

// offer returns a plugin for the resource, with a control socket in the playground's directory.
func (p *Playground) offer(resource string, args ...string) plugin {
	_, name, _ := strings.Cut(resource, "/")
	return plugin{resource: resource, args: append([]string{
		"plugin", "sim", "--resource=" + resource,
		"--dir=" + filepath.Join(p.dir, "root", "device-plugins"),
		"--control=" + filepath.Join(p.dir, name+"-control.sock"),
	}, args...)}
}

// run runs the process until ctx ends. It does not restart a plugin that ends by itself, for
// example after a crash by hand: users want to see how the agent reacts.
func (o plugin) run(ctx context.Context, log io.Writer) error {
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, cmp.Or(o.binary, executable), o.args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	// The plugin must not outlive a killed playground, and Ctrl-C must reach only the playground.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the plugin of %s: %w", o.name(), err)
	}
	if err := cmd.Wait(); err != nil && ctx.Err() == nil {
		fmt.Fprintf(log, "the plugin of %s has ended: %v\n", o.name(), err)
	}
	return nil
}

// name returns the resource, or the name of the driver.
func (o plugin) name() string { return cmp.Or(o.driver, o.resource) }

func (o plugin) isNamedIn(message string) bool { return strings.Contains(message, o.name()) }
