package scsi

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/numalet/numalet/internal/oneline"
)

const (
	// commandWait bounds one command. iscsid itself tries a login for 2 minutes.
	commandWait = 2*time.Minute + 10*time.Second
	// killWait is how long the output of a command that was killed is waited for.
	killWait = 2 * time.Second
	// maxOutput bounds what an error says of a command's output, in bytes.
	maxOutput = 1024
)

// Host is the node as the kernel shows it, and its commands.
type Host struct {
	Sys, Dev string // the roots of sysfs and of device nodes
	// Booted is when the host booted.
	Booted time.Time
	// Run runs a command and returns its output, of both kinds. It ends with ctx.
	Run func(ctx context.Context, name string, args ...string) ([]byte, error)
}

// TheHost is the host that the agent runs on.
func TheHost() Host { return Host{Sys: "/sys", Dev: "/dev", Booted: booted(), Run: run} }

// booted returns when the host booted; zero if the kernel does not say it.
func booted() time.Time {
	var since unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &since); err != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(since.Nano()))
}

func run(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = killWait
	return cmd.CombinedOutput()
}

// packages are where the tools come from, by command.
func packages(tool string) string {
	switch tool {
	case "iscsiadm":
		return "open-iscsi of Debian, iscsi-initiator-utils of Fedora"
	case "multipath":
		return "multipath-tools of Debian, device-mapper-multipath of Fedora"
	default:
		return "util-linux"
	}
}

// commandError is a command that failed.
type commandError struct {
	command string
	output  string
	err     error
}

func (e *commandError) Error() string {
	if e.output == "" {
		return fmt.Sprintf("%s: %v", e.command, e.err)
	}
	return fmt.Sprintf("%s: %v: %s", e.command, e.err, e.output)
}

func (e *commandError) Unwrap() error { return e.err }

// exitCode returns the exit code of a command that failed; -1: it has none.
func exitCode(err error) int {
	if exit, is := errors.AsType[interface {
		error
		ExitCode() int
	}](err); is {
		return exit.ExitCode()
	}
	return -1
}

// do runs a command. doing says what for, in the error.
func (h Host) do(ctx context.Context, doing, name string, args ...string) (string, error) {
	within, cancel := context.WithTimeout(ctx, commandWait)
	defer cancel()
	out, err := h.Run(within, name, args...)
	switch {
	case err == nil:
		return string(out), nil
	case errors.Is(err, exec.ErrNotFound):
		return "", fmt.Errorf("%s: %s is not installed on the node; install %s", doing, name,
			packages(name))
	case errors.Is(within.Err(), context.DeadlineExceeded) && ctx.Err() == nil:
		err = fmt.Errorf("it did not end within %v", commandWait)
	}
	return string(out), &commandError{doing, oneline.Cut(string(out), maxOutput), err}
}
