package containerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	"k8s.io/mount-utils"

	"github.com/numalet/numalet/internal/await"
)

const forwardSetting = "/proc/sys/net/ipv4/ip_forward"

// Sweep removes what a containerd in this directory has left, whether it was stopped or killed: its
// processes, containers with their cgroups, mounts, files, and its change of ip_forward.
func Sweep(ctx context.Context, c Config) error {
	for _, step := range []func() error{
		func() error { return killProcesses(ctx, c) },
		func() error { return deleteContainers(ctx, c) },
		func() error { return UnmountBelow(c.Dir) },
		func() error { return restoreForward(c) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	for _, name := range ownNames() {
		if err := os.RemoveAll(c.path(name)); err != nil {
			return err
		}
	}
	return nil
}

// killProcesses kills containerd and the shims, and waits until they are gone.
func killProcesses(ctx context.Context, c Config) error {
	for {
		pids, err := processes(c)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
				return fmt.Errorf("kill process %d: %w", pid, err)
			}
		}
		if !await.For(ctx, pollEvery) {
			return fmt.Errorf("wait for killed processes %v: %w", pids, context.Cause(ctx))
		}
	}
}

// processes lists containerd and the shims: those whose arguments name a file in the directory.
func processes(c Config) ([]int, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, p := range all {
		args, _ := p.CmdLine() // none: a kernel thread, or the process has exited
		if len(args) > 0 && strings.HasPrefix(filepath.Base(args[0]), "containerd") &&
			slices.ContainsFunc(args[1:], func(arg string) bool {
				return strings.HasPrefix(arg, c.Dir+"/")
			}) {
			pids = append(pids, p.PID)
		}
	}
	return pids, nil
}

// deleteContainers lets runc kill and delete the containers it still knows, and removes the CNI
// library's files about their networks. The networks disappear with their namespaces.
func deleteContainers(ctx context.Context, c Config) error {
	dirs, err := filepath.Glob(c.path("runc/*/*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		cmd := exec.CommandContext(ctx, "runc", "--root", filepath.Dir(dir),
			"delete", "--force", filepath.Base(dir))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("delete container %s: %w: %s", filepath.Base(dir), err,
				bytes.TrimSpace(out))
		}
	}
	notes, err := filepath.Glob(c.NetworkNotes())
	for _, file := range notes {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

// UnmountBelow unmounts everything below dir, the last mount first. Nothing in dir may be deleted
// before: a volume of the host could be mounted there.
func UnmountBelow(dir string) error {
	mounts, err := mount.New("").List()
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	for _, m := range slices.Backward(mounts) {
		if !strings.HasPrefix(m.Path, dir+"/") {
			continue
		}
		err := unix.Unmount(m.Path, unix.MNT_DETACH)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unmount %s: %w", m.Path, err)
		}
	}
	return nil
}

// saveForward records whether the machine forwards packets, since the network plugin turns that on.
// If two daemons run at a time, the second records what the first one's plugin has set.
func saveForward(c Config) error {
	text, err := os.ReadFile(forwardSetting)
	if err != nil {
		return err
	}
	return os.WriteFile(c.path(forwardFile), text, 0o644)
}

func restoreForward(c Config) error {
	before, err := os.ReadFile(c.path(forwardFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	now, err := os.ReadFile(forwardSetting)
	if err != nil || bytes.Equal(now, before) {
		return err
	}
	return os.WriteFile(forwardSetting, before, 0o644)
}
