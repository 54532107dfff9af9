// Package daemons keeps what runs beside pods in the cgroups that the configuration names: the
// agent (kubeletCgroups), the container runtime (--runtime-cgroups) and the other processes of the
// machine (systemCgroups). They are looked at again and again: a runtime that is restarted, and
// what is started at the top of the hierarchy, follow.
package daemons

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/cgroups"
)

// Names are the names of cgroups; "": processes stay where they were started.
type Names struct{ Agent, Runtime, System string }

// Paths returns the paths of the cgroups below each hierarchy's mount point, "" for those without a
// name.
func (n Names) Paths() Names {
	at := func(name string) string {
		if name == "" {
			return ""
		}
		return path.Clean("/" + name)
	}
	return Names{at(n.Agent), at(n.Runtime), at(n.System)}
}

// Daemons moves processes.
type Daemons struct {
	agent, runtime, system *cgroups.Home               // nil: not named
	runs                   func() (pid int, err error) // the runtime's process
}

// New returns what keeps processes in these cgroups; nil if none is named. endpoint is the
// runtime's socket, "unix:///PATH": the process that listens there is the runtime.
func New(names Names, endpoint string) (*Daemons, error) {
	if names == (Names{}) {
		return nil, nil
	}
	d := &Daemons{runs: func() (int, error) { return listener(endpoint) }}
	for _, one := range []struct {
		name string
		to   **cgroups.Home
	}{{names.Agent, &d.agent}, {names.Runtime, &d.runtime}, {names.System, &d.system}} {
		if one.name == "" {
			continue
		}
		var err error
		if *one.to, err = cgroups.OpenHome(one.name, "", ""); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// Look moves the processes that are not where they belong. The agent and the runtime are moved first, so
// that they do not count as the system's.
func (d *Daemons) Look(ctx context.Context) error {
	return errors.Join(
		d.one(ctx, "the agent", d.agent, func() (int, error) { return os.Getpid(), nil }),
		d.one(ctx, "the container runtime", d.runtime, d.runs),
		d.others(ctx),
	)
}

// one moves a process, unless it is in a container of its own.
func (d *Daemons) one(ctx context.Context, what string, home *cgroups.Home,
	find func() (int, error)) error {
	if home == nil {
		return nil
	}
	pid, err := find()
	if err != nil {
		return fmt.Errorf("find the process of %s: %w", what, err)
	}
	if !beside(pid) {
		return nil
	}
	moved, err := home.Take(pid)
	if moved {
		klog.FromContext(ctx).Info("Moved a process to its cgroup", "process", what, "pid", pid,
			"cgroup", home.Path())
	}
	return err
}

// beside reports whether the process is in the agent's PID namespace, and not the first process
// there: a process in another namespace is in a container, whose cgroup another program made.
func beside(pid int) bool {
	own, err1 := os.Readlink("/proc/self/ns/pid")
	its, err2 := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "ns/pid"))
	return err1 == nil && err2 == nil && own == its && pid > 1
}

// passes bounds the looks for processes that were started meanwhile.
const passes = 10

// others moves all processes at the top of the hierarchy that may leave it.
func (d *Daemons) others(ctx context.Context) error {
	if d.system == nil {
		return nil
	}
	count := 0
	var errs []error
	for pass := 0; pass < passes && ctx.Err() == nil; pass++ {
		strays, err := d.system.Strays()
		if err != nil {
			return err
		}
		errs = nil // a process may be movable only at a later look
		for _, pid := range strays {
			moved, err := d.system.Take(pid)
			if moved {
				count++
			}
			if err != nil {
				errs = append(errs, err)
			}
		}
		if len(strays) == 0 {
			break
		}
	}
	if count > 0 {
		klog.FromContext(ctx).Info("Moved processes to the system's cgroup", "processes", count,
			"cgroup", d.system.Path())
	}
	if len(errs) > 1 { // one of a kind says it
		return fmt.Errorf("%w; and %d more", errs[0], len(errs)-1)
	}
	return errors.Join(errs...)
}

// patience bounds the wait for a runtime that accepts no connection.
const patience = 5 * time.Second

// listener returns the process that listens on a unix socket (unix(7), SO_PEERCRED).
func listener(endpoint string) (int, error) {
	conn, err := net.DialTimeout("unix", strings.TrimPrefix(endpoint, "unix://"), patience)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var peerErr error
	err = raw.Control(func(fd uintptr) {
		peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, peerErr); err != nil {
		return 0, err
	}
	return int(peer.Pid), nil
}
