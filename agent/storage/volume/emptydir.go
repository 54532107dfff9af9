package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/mount-utils"

	"github.com/numalet/numalet/agent/storage/volume/operation"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/quantity"
)

// emptyDirMode lets containers of any user write.
const emptyDirMode = fs.FileMode(0o777)

// emptyDirName is the kubelet's name of the type.
const emptyDirName = "kubernetes.io/empty-dir"

func emptyDirs() plugin {
	return plugin{from: inPods, field: "emptyDir", name: emptyDirName, relabel: true,
		facts: func(u used) facts {
			onDisk := u.volume.EmptyDir.Medium == v1.StorageMediumDefault
			return facts{mounted: !onDisk, own: true, onDisk: onDisk, counted: onDisk, ordinary: onDisk}
		},
		setUp: func(ctx context.Context, m *makers, t target) (time.Time, error) {
			source := *t.volume.EmptyDir
			if !m.cfg.enabled(emptyDirModes) {
				source.Mode = nil
			}
			began := time.Now()
			err := m.makeEmptyDir(t, source)
			if err == nil {
				m.count(ctx, t)
			}
			if groupOf(t.pod) != nil {
				m.cfg.did(t.used, operation.ApplyAccess, began, err)
			}
			return time.Time{}, err
		}}
}

// count has the kernel count what is written to an emptyDir on disk, if the pod has users of its
// own: others could make the count wrong. Without the count, the meter has to walk the files.
func (n *node) count(ctx context.Context, t target) {
	onDisk := t.volume.EmptyDir.Medium == v1.StorageMediumDefault
	if n.cfg.Count == nil || !onDisk || !cri.OwnUsers(t.pod) {
		return
	}
	if err := n.cfg.Count(t.path()); err != nil {
		klog.FromContext(ctx).Info("The kernel does not count what is in a volume",
			"pod", klog.KObj(t.pod), "volume", t.volume.Name, "err", err)
	}
}

// defaulted returns the volume as the API defaults it: without any source it is an emptyDir.
func defaulted(volume v1.Volume) v1.Volume {
	if sourceKind(volume.VolumeSource) == "" {
		volume.EmptyDir = &v1.EmptyDirVolumeSource{}
	}
	return volume
}

// makeEmptyDir makes a directory that begins empty, with memory or huge pages mounted on it if the
// medium says so. It completes what an earlier try left.
func (n *node) makeEmptyDir(t target, source v1.EmptyDirVolumeSource) error {
	path := t.path()
	if err := os.MkdirAll(filepath.Dir(path), dirMode); err != nil {
		return fmt.Errorf("create emptyDir: %w", err)
	}
	if err := os.Mkdir(path, emptyDirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("create emptyDir: %w", err)
	}
	if source.Medium != v1.StorageMediumDefault && !t.have.mounted {
		allocatable := n.cfg.Facts().Allocatable
		if err := n.mountMedium(t.pod, source, path, allocatable.Memory().Value()); err != nil {
			return err
		}
	}
	if err := own(t.pod, path, modeOf(source.Mode), n.asRoot); err != nil {
		return err
	}
	return t.markReady()
}

// markReady records that the volume is complete.
func (t target) markReady() error {
	path := t.ready()
	if err := os.MkdirAll(filepath.Dir(path), dirMode); err != nil {
		return fmt.Errorf("mark volume as ready: %w", err)
	}
	if err := os.WriteFile(path, nil, 0o640); err != nil {
		return fmt.Errorf("mark volume as ready: %w", err)
	}
	return nil
}

// modeOf returns the mode of an emptyDir that has one of its own, 0 to 01777; nil: it has none.
func modeOf(own *int32) *fs.FileMode {
	if own == nil {
		return nil
	}
	mode := fs.FileMode(*own).Perm()
	if *own&0o1000 != 0 {
		mode |= fs.ModeSticky
	}
	return &mode
}

// own gives an empty directory its mode and, if the pod has an fsGroup, its group, which may do
// anything in it and which files made inside inherit. Without root the group stays ours. A tmpfs is
// sticky when mounted and stays so, unless it has a mode of its own: programs expect that where they
// keep temporary files.
func own(pod *v1.Pod, dir string, own *fs.FileMode, asRoot bool) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("set mode of emptyDir: %w", err)
	}
	mode := emptyDirMode | info.Mode()&fs.ModeSticky
	if own != nil {
		mode = *own
	}
	if group := groupOf(pod); group != nil {
		if asRoot {
			if err := os.Lchown(dir, -1, int(*group)); err != nil {
				return fmt.Errorf("give emptyDir to group %d of fsGroup: %w", *group, err)
			}
		}
		mode |= groupMayDir
	}
	if err := os.Chmod(dir, mode); err != nil {
		return fmt.Errorf("set mode of emptyDir: %w", err)
	}
	return nil
}

// mountMedium mounts memory or huge pages on dir.
func (f filesystems) mountMedium(
	pod *v1.Pod, source v1.EmptyDirVolumeSource, dir string, node int64,
) error {
	if source.Medium == v1.StorageMediumMemory {
		return f.mountTmpfs(dir, memorySize(pod, source.SizeLimit, node))
	}
	size, err := hugePageSize(pod, source.Medium)
	if err != nil {
		return err
	}
	options := []string{fmt.Sprintf("pagesize=%d", size)}
	if err := f.mounter.Mount("nodev", dir, "hugetlbfs", options); err != nil {
		return fmt.Errorf("mount emptyDir of medium %s: %w", source.Medium, err)
	}
	return nil
}

// StaysInMemory reports whether the kernel can keep the content of memory-backed volumes out of
// swap (noswap of tmpfs(5), since Linux 6.4). It mounts a tmpfs for a moment, in a new directory
// below dir.
func StaysInMemory(m mount.Interface, dir string) (bool, error) {
	at, err := os.MkdirTemp(dir, "noswap-")
	if err != nil {
		return false, fmt.Errorf("see what tmpfs can: %w", err)
	}
	can := m.Mount("tmpfs", at, "tmpfs", []string{"noswap"}) == nil
	if can {
		err = m.Unmount(at)
	}
	return can, errors.Join(err, os.Remove(at))
}

// mountTmpfs mounts a tmpfs, whose content stays out of swap where the kernel can do that (noswap,
// since 6.4).
func (f filesystems) mountTmpfs(dir string, size int64) error {
	var options []string
	if size > 0 {
		options = append(options, fmt.Sprintf("size=%d", size))
	}
	if f.mounter.Mount("tmpfs", dir, "tmpfs", append(slices.Clone(options), "noswap")) == nil {
		return nil
	}
	if err := f.mounter.Mount("tmpfs", dir, "tmpfs", options); err != nil {
		return fmt.Errorf("mount emptyDir of medium Memory: %w", err)
	}
	return nil
}

// ResizeInMemory gives an emptyDir in memory another size in bytes. The kernel refuses one below what is used; one
// that is not mounted yet is going to have its size from the pod.
func (v *Volumes) ResizeInMemory(uid types.UID, name string, size int64) error {
	dir, err := v.node.podDir(uid)
	if err == nil {
		err = component("volume", name)
	}
	if err != nil {
		return err
	}
	path := place{emptyDirName, name}.in(dir)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil // no container uses it yet
	}
	err = v.node.mounter.Mount("tmpfs", path, "tmpfs", []string{"remount", fmt.Sprintf("size=%d", size)})
	if err != nil {
		return fmt.Errorf("resize volume %s in memory to %d bytes: %w; a volume does not get smaller than what is "+
			"in it", name, size, err)
	}
	return nil
}

// memorySize returns the size of a memory-backed emptyDir in bytes: the smallest of its own limit,
// the pod's memory limit and the node's memory; 0 if none of them is known.
func memorySize(pod *v1.Pod, limit *resource.Quantity, node int64) int64 {
	size := node
	bound := func(n int64) {
		if n > 0 && (size == 0 || n < size) {
			size = n
		}
	}
	bound(cgroups.PodResources(pod, cgroups.PodOptions{}).Memory)
	if limit != nil {
		bound(limit.Value())
	}
	return size
}

// hugePageSize returns the page size in bytes: of medium HugePages-SIZE, for which the pod must
// have a request; of medium HugePages the only size that the pod requests.
func hugePageSize(pod *v1.Pod, medium v1.StorageMedium) (int64, error) {
	asked := cgroups.PodResources(pod, cgroups.PodOptions{}).HugePages
	if text, ok := strings.CutPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix)); ok {
		size, ok := quantity.PageSize(v1.ResourceHugePagesPrefix + v1.ResourceName(text))
		if !ok {
			return 0, fmt.Errorf("medium %q names no page size; write it as HugePages-2Mi", medium)
		}
		if asked[size] == 0 { // processes that write there would be killed
			return 0, fmt.Errorf("medium %s: hugePages storage requested, but there is no resource "+
				"request for huge pages; add %s%s to the limits of a container", medium,
				v1.ResourceHugePagesPrefix, text)
		}
		return size, nil
	}
	if medium != v1.StorageMediumHugePages {
		return 0, fmt.Errorf("medium %q is not one of Memory, HugePages and HugePages-SIZE", medium)
	}
	sizes := slices.Collect(maps.Keys(asked))
	if len(sizes) != 1 {
		return 0, fmt.Errorf("medium HugePages: the pod's limits name %d page sizes, not one; "+
			"write the medium as HugePages-2Mi", len(sizes))
	}
	return sizes[0], nil
}
