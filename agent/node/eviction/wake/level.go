package wake

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// level is the use of a cgroup at which the kernel wakes.
type level struct {
	fd int // an eventfd(2); 0: none
	at time.Time
	// failed: it could not be set, which was said.
	failed bool
}

// Arm has the kernel wake when the cgroup, below the mount point, uses headroom more bytes than now.
// Only cgroups of version 1 can be armed, and only if the configuration wants that.
func (k *Kernel) Arm(ctx context.Context, cgroup string, headroom int64) {
	if k.cfg.Unified || !k.cfg.Levels || headroom <= 0 {
		return
	}
	last, due := k.due(cgroup)
	if !due {
		return
	}
	fd, err := k.arm(filepath.Join(k.cfg.Cgroups, "memory", cgroup), headroom)
	if err != nil && !last.failed {
		klog.FromContext(ctx).Error(err, "The kernel does not tell when the memory that a cgroup uses "+
			"crosses the threshold (kernelMemcgNotification); it is looked at more often then")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.removeLocked(last.fd)
	k.armed[cgroup] = level{fd, time.Now(), err != nil}
}

// due returns the level of the cgroup, if any, and reports whether it is time for another one.
func (k *Kernel) due(cgroup string) (level, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	last, before := k.armed[cgroup]
	return last, k.poll != 0 && (!before || time.Since(last.at) >= refresh)
}

// arm registers an eventfd with the cgroup in dir (the kernel's admin-guide/cgroup-v1/memory.rst, 9).
func (k *Kernel) arm(dir string, headroom int64) (fd int, err error) {
	usage, err := os.Open(filepath.Join(dir, "memory.usage_in_bytes"))
	if err != nil {
		return 0, err
	}
	defer usage.Close()
	var text [32]byte
	n, err := usage.Read(text[:])
	if err != nil {
		return 0, err
	}
	used, err := strconv.ParseInt(strings.TrimSpace(string(text[:n])), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", usage.Name(), err)
	}
	if fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return 0, err
	}
	if err := k.add(fd, unix.EPOLLIN, source{usage.Name(), counted}); err != nil {
		return 0, err
	}
	err = os.WriteFile(filepath.Join(dir, "cgroup.event_control"),
		fmt.Appendf(nil, "%d %d %d", fd, usage.Fd(), used+headroom), 0)
	if err != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.removeLocked(fd)
		return 0, err
	}
	return fd, nil
}
