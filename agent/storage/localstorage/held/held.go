// Package held knows what the processes of a pod do with the node's disks that no directory shows: what
// they hold open of deleted files, and how much they wrote.
//
// A process may hold a deleted file by a descriptor, or mapped into its memory; threads may have
// descriptors of their own. A pod cannot make this slow for others, as each look has a bound, nor hang:
// no server of a filesystem is asked.
package held

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/storage/diskusage"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cgroups/kernel"
)

const (
	// maxProcesses, maxFiles and maxMaps bound a look at a pod: its processes, their descriptors, and the
	// bytes that are read of what a process maps.
	maxProcesses, maxFiles, maxMaps = 4096, 1 << 18, 4 << 20
)

// Pods looks at the processes of pods.
type Pods struct {
	Groups kernel.Groups
	// Paths returns the cgroups of a pod.
	Paths func(types.UID) (cgroups.PodPaths, error)
	// Proc is the mount point of /proc; "": the usual one.
	Proc string
}

// Files are deleted files that processes hold: those on one filesystem, and those on the filesystems
// that are processes' roots.
type Files struct {
	On, Layers diskusage.Usage
	// Partial: there may be more.
	Partial bool
}

// processes lists the processes of a pod; all is false if there are more than the bound, or they cannot
// be listed.
func (p Pods) processes(uid types.UID) (pids []string, all bool) {
	paths, err := p.Paths(uid)
	if err != nil || paths.Pod == "" {
		return nil, err == nil
	}
	return p.Groups.Processes(paths.Pod, maxProcesses)
}

// look is one look at a pod.
type look struct {
	proc   string
	device uint64 // of the filesystem that is looked at
	files  int
	seen   map[file]bool
	found  Files
}

// file identifies a file. A mapped file of an overlay is that of the filesystem below, with the same
// inode: the device does not tell.
type file struct{ inode, blocks uint64 }

// Held returns the deleted files that a pod's processes hold on the filesystem of a directory, and on
// their own root filesystems. If ctx ends, it is partial.
func (p Pods) Held(ctx context.Context, uid types.UID, dir string) Files {
	pids, all := p.processes(uid)
	l := look{proc: cmp.Or(p.Proc, "/proc"), seen: map[file]bool{}}
	s, err := stat(dir)
	if err != nil {
		return Files{Partial: true}
	}
	l.device = deviceOf(&s)
	l.found.Partial = !all
	for _, pid := range pids {
		if l.files > maxFiles || ctx.Err() != nil {
			l.found.Partial = true
			break
		}
		l.process(ctx, pid)
	}
	return l.found
}

// process looks at what a process holds, and at the descriptors of threads that have their own.
func (l *look) process(ctx context.Context, pid string) {
	at := filepath.Join(l.proc, pid)
	root := ^uint64(0)
	if s, err := stat(filepath.Join(at, "root")); err == nil {
		root = deviceOf(&s)
	}
	tasks, err := names(filepath.Join(at, "task"), maxFiles)
	if err != nil {
		return // it is gone
	}
	mapped := false
	for _, tid := range tasks {
		if l.files > maxFiles || ctx.Err() != nil {
			l.found.Partial = true
			return
		}
		if tid != pid && sameFiles(pid, tid) {
			continue
		}
		task := filepath.Join(at, "task", tid)
		l.open(filepath.Join(task, "fd"), root)
		mapped = mapped || l.mapped(filepath.Join(l.proc, tid), root)
	}
}

// open looks at descriptors.
func (l *look) open(dir string, root uint64) {
	fds, err := names(dir, maxFiles)
	if err != nil && !os.IsNotExist(err) {
		l.found.Partial = true
	}
	for _, fd := range fds {
		l.file(filepath.Join(dir, fd), root)
	}
}

// mapped looks at deleted files that are mapped, and reports whether there is anything mapped: a thread
// that is ending has nothing.
func (l *look) mapped(task string, root uint64) bool {
	text, all := head(filepath.Join(task, "maps"), maxMaps)
	l.found.Partial = l.found.Partial || !all
	for line := range strings.Lines(text) { // 7f0-7f1 rw-s 00000000 fe:00 1234 /a/file (deleted)
		if addresses, _, ok := strings.Cut(line, " "); ok && strings.HasSuffix(line, " (deleted)\n") {
			l.file(filepath.Join(task, "map_files", addresses), root)
		}
	}
	return text != ""
}

// file counts what a link leads to if it is a deleted file.
func (l *look) file(link string, root uint64) {
	l.files++
	s, err := stat(link)
	if err != nil || s.Nlink > 0 || s.Mode&unix.S_IFMT != unix.S_IFREG {
		return
	}
	device, of := deviceOf(&s), file{s.Ino, s.Blocks}
	if device != l.device && device != root || l.seen[of] {
		return
	}
	l.seen[of] = true
	used := diskusage.Usage{Bytes: s.Blocks * 512, Inodes: 1}
	if device == l.device {
		l.found.On = l.found.On.Add(used)
	} else {
		l.found.Layers = l.found.Layers.Add(used)
	}
}

// Wrote is how much a pod's processes have written: those that run now, and by the count of their
// cgroup. Neither is all: the kernel may charge late writes to no pod, and processes end.
type Wrote struct{ processes, group uint64 }

// Since returns how much was written since another time, at least.
func (w Wrote) Since(before Wrote) uint64 {
	return max(w.processes-min(w.processes, before.processes), w.group-min(w.group, before.group))
}

// Wrote returns how much a pod's processes have written.
func (p Pods) Wrote(uid types.UID) (w Wrote) {
	paths, err := p.Paths(uid)
	if err != nil || paths.Pod == "" {
		return w
	}
	for _, device := range p.Groups.Reader().IO(paths.Pod) {
		w.group += device.WrittenBytes
	}
	pids, _ := p.Groups.Processes(paths.Pod, maxProcesses)
	for _, pid := range pids {
		text, _ := head(filepath.Join(cmp.Or(p.Proc, "/proc"), pid, "io"), 4096)
		_, after, _ := strings.Cut(text, "\nwrite_bytes: ")
		line, _, _ := strings.Cut(after, "\n")
		if n, err := strconv.ParseUint(line, 10, 64); err == nil {
			w.processes += n
		}
	}
	return w
}

// sameFiles reports whether two threads have the same descriptors (kcmp(2), Linux 3.5). If the kernel
// does not tell, they are taken to have, as most do.
func sameFiles(a, b string) bool {
	x, errX := strconv.Atoi(a)
	y, errY := strconv.Atoi(b)
	if errX != nil || errY != nil {
		return false
	}
	const files = 2 // KCMP_FILES
	order, _, e := unix.Syscall6(unix.SYS_KCMP, uintptr(x), uintptr(y), files, 0, 0, 0)
	return e == 0 && order == 0 || e == unix.ENOSYS || e == unix.EPERM
}
