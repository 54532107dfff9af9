package hostinfo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/mount-utils"

	"github.com/numalet/numalet/agent/storage/volume"
	"github.com/numalet/numalet/deviceplugin/watcher"
	"github.com/numalet/numalet/internal/files"
)

// MakeDirs makes the agent's directories with the kubelet's modes. links is where log collectors
// look for logs; "": nowhere. A file or link in the place of a directory that holds only sockets, or
// files that are made again, is moved aside; moved has an error that is files.ErrUnusable for each. In
// the place of the other directories it is an error, since these have volumes that pods use.
func MakeDirs(root, logsDir, links string) (moved []error, err error) {
	for _, d := range []struct {
		path string
		mode os.FileMode
		ours bool
	}{
		{root, 0o750, false},
		{filepath.Join(root, "pods"), 0o750, false},
		{filepath.Join(root, "plugins"), 0o750, false},
		{filepath.Join(root, watcher.Registry), 0o750, true},
		{filepath.Join(root, filepath.Base(filepath.Clean(pluginapi.DevicePluginPath))), 0o750, true},
		{filepath.Join(root, "pod-resources"), 0o750, true},
		{filepath.Join(root, "checkpoints"), 0o700, true},
		{logsDir, 0o750, false},
		{links, 0o755, false},
	} {
		if d.path == "" {
			continue
		}
		if d.ours {
			err = files.MakeFolder(d.path, d.mode, time.Now())
		} else {
			err = os.MkdirAll(d.path, d.mode)
		}
		switch {
		case errors.Is(err, files.ErrUnusable):
			moved = append(moved, err)
		case errors.Is(err, unix.ENOTDIR), errors.Is(err, fs.ErrExist):
			return moved, fmt.Errorf("make directory: %w: a file or a dangling link stands in its place; "+
				"put the directory back, or move away what stands there", err)
		case err != nil:
			return moved, fmt.Errorf("make directory: %w; give a writable one with --root-dir or "+
				"podLogsDir", err)
		}
	}
	return moved, nil
}

// Check refuses hosts that the configuration says to refuse.
func Check(ctx context.Context, k *kubeletconfig.KubeletConfiguration) error {
	if *k.FailSwapOn {
		on, err := swapOn(Swaps)
		if err != nil {
			return err
		}
		if on {
			return errors.New("running with swap on is not supported, please disable swap or " +
				"set --fail-swap-on flag to false")
		}
	}
	if !*k.CgroupsPerQOS || Unified() {
		return nil
	}
	if *k.FailCgroupV1 {
		return errors.New("this host has cgroup v1 and failCgroupV1 is true; boot it with cgroup " +
			"v2 (systemd.unified_cgroup_hierarchy=1), or set failCgroupV1: false " +
			"(--fail-cgroupv1=false)")
	}
	klog.FromContext(ctx).Info("The host has cgroup v1, which the kubelet no longer supports by " +
		"default")
	return nil
}

// WarnOfSwap reports a host that may swap what volumes keep in memory, such as secrets. swaps is
// Swaps, unless in a test.
func WarnOfSwap(swaps, dir string, m mount.Interface,
	tell func(eventType, reason, message string)) error {
	on, err := swapOn(swaps)
	if err != nil || !on {
		return err
	}
	stays, err := volume.StaysInMemory(m, dir)
	if err == nil && !stays {
		tell(v1.EventTypeWarning, "PossibleMemoryBackedVolumesOnDisk", "The tmpfs noswap option is not "+
			"supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) might be swapped to disk "+
			"and should no longer be considered secure.")
	}
	return err
}
