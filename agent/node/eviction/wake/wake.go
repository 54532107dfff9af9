// Package wake hears from the kernel that memory runs short, between two looks at it:
//
//   - pressure stall information (kernel's Documentation/accounting/psi.rst): tasks of the machine, or
//     of all pods, waited for memory. Machines with either version of cgroups have it.
//   - memory.events.local of the cgroup of all pods (cgroup v2): it has reached its limit. Its
//     memory.events is not followed: a container that lives at its own limit changes it all the time.
//   - memory thresholds (cgroup v1, cgroup.event_control): the use of a cgroup crossed a level, which
//     the last look has set (Arm).
//
// A source that cannot be opened is logged once and tried again from time to time: the cgroup may come
// later. Memory is looked at from time to time anyway.
package wake

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/await"
)

const (
	// pause is the least time between two wakes, whatever the kernel says.
	pause = 100 * time.Millisecond
	// refresh is the time after which a source that was not there is tried again, and after which a level
	// is set anew: it moves with the page cache, and each time the kernel waits for all CPUs.
	refresh = 10 * time.Second
)

// stalls are the triggers to try in turn: tasks waited for 50 ms of a second. Without CAP_SYS_RESOURCE
// the kernel takes only windows of two seconds.
var stalls = []string{"some 50000 1000000", "some 100000 2000000"}

// Config says where to listen.
type Config struct {
	// Proc and Cgroups are mount points; "" means /proc and /sys/fs/cgroup.
	Proc, Cgroups string
	// Unified: the cgroups are of version 2.
	Unified bool
	// Pods is the cgroup of all pods, below the mount point; "": there is none.
	Pods string
	// Levels: cgroups of version 1 may be armed (kernelMemcgNotification).
	Levels bool
}

// Kernel listens to the kernel while Run runs.
type Kernel struct {
	cfg   Config
	woken chan struct{}

	mu sync.Mutex // guards what follows, and that no descriptor is closed while it is used
	// poll is an epoll(7) instance, to which descriptors come while Run waits; 0: Run does not run.
	poll    int
	sources map[int]source
	armed   map[string]level // by cgroup
}

// source is a descriptor to which the kernel tells something.
type source struct {
	file string
	// hear takes what was told, so that the kernel tells again. An error ends the source.
	hear func(fd int, events uint32) error
}

// New returns a Kernel that hears nothing yet.
func New(c Config) *Kernel {
	c.Proc, c.Cgroups = cmp.Or(c.Proc, "/proc"), cmp.Or(c.Cgroups, "/sys/fs/cgroup")
	return &Kernel{cfg: c, woken: make(chan struct{}, 1), sources: map[int]source{},
		armed: map[string]level{}}
}

// Woken has a value if the kernel has told something since the last receive.
func (k *Kernel) Woken() <-chan struct{} { return k.woken }

// Run hands on what the kernel tells until ctx ends. The cgroup of all pods should be there.
func (k *Kernel) Run(ctx context.Context) error {
	poll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("listen to the kernel: %w", err)
	}
	k.begin(poll)
	defer k.close()
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("listen to the kernel: %w", err)
	}
	if err := k.add(stop, unix.EPOLLIN, source{"", counted}); err != nil {
		return fmt.Errorf("listen to the kernel: %w", err)
	}
	stopped := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(stopped)
		_, _ = unix.Write(stop, one) // it is open, and takes 2^64 of them
	})
	defer func() {
		if !cancel() {
			<-stopped
		}
	}()
	return k.listen(ctx, poll)
}

func (k *Kernel) begin(poll int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.poll = poll
}

// files are the sources with files, and how each is opened.
func (k *Kernel) files() map[string]func(string) error {
	out := map[string]func(string) error{filepath.Join(k.cfg.Proc, "pressure/memory"): k.stall}
	if k.cfg.Unified && k.cfg.Pods != "" {
		pods := filepath.Join(k.cfg.Cgroups, k.cfg.Pods)
		out[filepath.Join(pods, "memory.pressure")] = k.stall
		out[filepath.Join(pods, "memory.events.local")] = k.events
	}
	return out
}

// open opens the sources that are not open, and returns the time to the next try in milliseconds;
// negative: all are open. said are the files whose errors were logged.
func (k *Kernel) open(ctx context.Context, said sets.Set[string]) int {
	again := -1
	for file, open := range k.files() {
		if k.has(file) {
			continue
		}
		err := open(file)
		if err == nil {
			said.Delete(file)
			continue
		}
		again = int(refresh.Milliseconds())
		if !said.Has(file) {
			said.Insert(file)
			klog.FromContext(ctx).Info("The kernel does not wake the agent when memory runs short; it "+
				"looks more often then", "file", file, "err", err)
		}
	}
	return again
}

func (k *Kernel) has(file string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.sources {
		if s.file == file {
			return true
		}
	}
	return false
}

func (k *Kernel) listen(ctx context.Context, poll int) error {
	var events [8]unix.EpollEvent
	said := sets.Set[string]{}
	for {
		n, err := unix.EpollWait(poll, events[:], k.open(ctx, said))
		switch {
		case ctx.Err() != nil:
			return nil
		case n == 0 || errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("listen to the kernel: %w", err)
		}
		for _, e := range events[:n] {
			k.hear(ctx, e)
		}
		await.Wake(k.woken)
		if !await.For(ctx, pause) {
			return nil
		}
	}
}

// hear takes an event; a source that is over is closed.
func (k *Kernel) hear(ctx context.Context, e unix.EpollEvent) {
	k.mu.Lock()
	defer k.mu.Unlock()
	fd := int(e.Fd)
	s, ok := k.sources[fd]
	if !ok { // closed since
		return
	}
	if err := s.hear(fd, e.Events); err != nil {
		klog.FromContext(ctx).Info("The kernel does not tell any more that memory runs short",
			"file", s.file, "err", err)
		k.removeLocked(fd)
	}
}

// stall adds a trigger to a file with pressure stall information.
func (k *Kernel) stall(file string) error {
	fd, err := unix.Open(file, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	for _, trigger := range stalls {
		if _, err = unix.Write(fd, append([]byte(trigger), 0)); err == nil {
			return k.add(fd, unix.EPOLLPRI, source{file, func(_ int, events uint32) error {
				if events&unix.EPOLLERR != 0 {
					return errors.New("its cgroup was removed")
				}
				return nil
			}})
		}
	}
	return errors.Join(err, unix.Close(fd))
}

// events adds a file of a cgroup. The kernel tells changes of it once it was read.
func (k *Kernel) events(file string) error {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	reread := func(fd int, _ uint32) error {
		var text [512]byte
		_, err := unix.Pread(fd, text[:], 0)
		return err
	}
	if err := reread(fd, 0); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	return k.add(fd, unix.EPOLLPRI, source{file, reread})
}

// one, written to an eventfd(2), wakes the goroutine that waits for it.
var one = binary.NativeEndian.AppendUint64(nil, 1)

// counted takes what an eventfd has counted.
func counted(fd int, _ uint32) error {
	var count [8]byte
	if _, err := unix.Read(fd, count[:]); err != nil && !errors.Is(err, unix.EAGAIN) {
		return err
	}
	return nil
}

// add takes over the descriptor, and closes it if that fails.
func (k *Kernel) add(fd int, events uint32, s source) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.poll == 0 {
		return errors.Join(errors.New("nobody listens"), unix.Close(fd))
	}
	err := unix.EpollCtl(k.poll, unix.EPOLL_CTL_ADD, fd,
		&unix.EpollEvent{Fd: int32(fd), Events: events})
	if err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	k.sources[fd] = s
	return nil
}

// removeLocked closes a source, which ends what was registered with it and takes it from the poll.
func (k *Kernel) removeLocked(fd int) {
	if _, ok := k.sources[fd]; ok {
		delete(k.sources, fd)
		_ = unix.Close(fd)
	}
}

func (k *Kernel) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for fd := range k.sources {
		k.removeLocked(fd)
	}
	_ = unix.Close(k.poll)
	k.poll = 0
}
