package localstorage

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/storage/diskusage"
	"github.com/numalet/numalet/agent/storage/volume"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// filesPeriod is the time between two looks at logs.
const filesPeriod = 10 * time.Second

// volumesOf measures the pod's volumes, and returns how long it worked. A volume that cannot be
// measured now keeps its last values if it is still there, and is left out if not.
func (m *Meter) volumesOf(ctx context.Context, pod *v1.Pod, before []Volume) (
	all []Volume, worked time.Duration) {
	for _, v := range volume.OwnOf(m.cfg.Root, pod) {
		v.Counted = v.Counted && m.cfg.Quota != nil && cri.OwnUsers(pod) // others could make it wrong
		began := time.Now()
		one, by, took, err := m.volume(ctx, v, func() bool { return m.hurries(pod.UID) })
		one.Name, one.At, one.Local = v.Name, began, v.OnDisk
		worked += took
		switch {
		case err == nil:
			m.cfg.Looked(by, time.Since(began))
			all = append(all, one)
		case ctx.Err() != nil:
			at := slices.IndexFunc(before, func(b Volume) bool { return b.Name == v.Name })
			if at >= 0 {
				all = append(all, before[at])
			}
		}
	}
	return all, worked
}

// volume measures a volume with the cheapest method that there is. hurries reports whether a caller of Anew
// waits for that.
func (m *Meter) volume(ctx context.Context, of volume.Own, hurries func() bool) (
	v Volume, by string, worked time.Duration, err error) {
	began, own := time.Now(), isMount(of.Path)
	if of.OnDisk && own { // something foreign is mounted there; it is not the pod's
		return v, "", 0, os.ErrInvalid
	}
	if v.Room, err = diskusage.Filesystem(of.Path); err != nil {
		return v, "", 0, err
	}
	// Below a root directory on a tmpfs, what is used of the filesystem is not the volume's alone.
	if own && v.Room.Tmpfs && v.Room.Capacity > 0 { // mounted for the volume, with its size
		v.Used = v.Room.Usage()
		return v, "statfs", time.Since(began), nil
	}
	if of.Counted {
		if used, counted := m.cfg.Quota(of.Path); counted {
			v.Used = used
			return v, "fsquota", time.Since(began), nil
		}
	}
	v.Used, worked, err = diskusage.Of(ctx, of.Path, hurries)
	return v, "du", worked, err
}

// isMount reports whether something is mounted at path.
func isMount(path string) bool {
	var s unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path,
		unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &s)
	return err == nil && s.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// filesOf measures the logs of a pod and its /etc/hosts. Missing files use nothing.
func (m *Meter) filesOf(pod *v1.Pod) Pod {
	p := Pod{Namespace: pod.Namespace, Name: pod.Name, At: time.Now(),
		Logs: map[string]diskusage.Usage{}}
	dir := cri.PodLogDir(m.cfg.LogsDir, pod)
	for c := range podspec.All(pod) {
		if used, err := diskusage.Files(filepath.Join(dir, c.Name)); err == nil {
			p.Logs[c.Name] = used
		}
	}
	own, err := diskusage.Files(dir)
	if err == nil {
		p.Files = own
	}
	var hosts unix.Stat_t
	if unix.Lstat(filepath.Join(m.cfg.Root, "pods", string(pod.UID), "etc-hosts"), &hosts) == nil {
		p.Files = p.Files.Add(diskusage.Usage{Bytes: uint64(hosts.Blocks) * 512, Inodes: 1})
	}
	return p
}

// disk follows how much the disk of the root directory grew.
type disk struct {
	used, size uint64
	// grown is the sum of all growth between two looks: a pod cannot have written more of it.
	grown uint64
}

// next looks again. A disk that cannot be looked at did not grow.
func (d disk) next(path string) disk {
	room, err := diskusage.Filesystem(path)
	if err != nil {
		return d
	}
	if d.size > 0 && room.Used > d.used {
		d.grown += room.Used - d.used
	}
	d.used, d.size = room.Used, cmp.Or(room.Capacity, d.size)
	return d
}
