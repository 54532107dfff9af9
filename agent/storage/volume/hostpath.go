package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/internal/files"
)

func hostPaths() plugin {
	return plugin{
		from:  inPods | byPVCs,
		field: "hostPath", // its files keep the host's SELinux label
		name:  "kubernetes.io/host-path",
		setUp: func(ctx context.Context, m *makers, t target) (time.Time, error) {
			return time.Time{}, m.calls.do(ctx, "look at "+t.path(), func() error {
				return checkHostPath(hostSource(t.used))
			})
		},
		path: func(u used) string { return hostSource(u).Path },
	}
}

func hostSource(u used) *v1.HostPathVolumeSource {
	if u.pv != nil {
		return u.pv.Spec.HostPath
	}
	return u.volume.HostPath
}

// checkHostPath returns an error if the file at the path is not of the volume's type, and first
// creates it for the types that say so. Without a type anything is right, even a path that does not
// exist.
func checkHostPath(source *v1.HostPathVolumeSource) error {
	kind := ptr.Deref(source.Type, v1.HostPathUnset)
	if kind == v1.HostPathUnset {
		return nil
	}
	want, ok := hostPathKind(kind)
	if !ok {
		return fmt.Errorf("hostPath %s: unknown type %q", source.Path, kind)
	}
	if err := createHostPath(source.Path, kind); err != nil {
		return fmt.Errorf("hostPath type %s: create: %w", kind, err)
	}
	info, err := os.Stat(source.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("hostPath type check failed: %s is not %s: nothing is there (type %s)",
			source.Path, want.name, kind)
	}
	if err != nil {
		return fmt.Errorf("hostPath type check failed: %w (type %s)", err, kind)
	}
	if info.Mode()&(fs.ModeType) != want.mode {
		return fmt.Errorf("hostPath type check failed: %s is not %s (type %s)",
			source.Path, want.name, kind)
	}
	return nil
}

// fileKind is a kind of file: its type bits and its name in messages.
type fileKind struct {
	mode fs.FileMode
	name string
}

func hostPathKind(kind v1.HostPathType) (fileKind, bool) {
	switch kind {
	case v1.HostPathDirectory, v1.HostPathDirectoryOrCreate:
		return fileKind{fs.ModeDir, "a directory"}, true
	case v1.HostPathFile, v1.HostPathFileOrCreate:
		return fileKind{0, "a file"}, true
	case v1.HostPathSocket:
		return fileKind{fs.ModeSocket, "a socket file"}, true
	case v1.HostPathCharDev:
		return fileKind{fs.ModeDevice | fs.ModeCharDevice, "a character device"}, true
	case v1.HostPathBlockDev:
		return fileKind{fs.ModeDevice, "a block device"}, true
	}
	return fileKind{}, false
}

// createHostPath creates a missing directory with its parents, or a missing file.
func createHostPath(path string, kind v1.HostPathType) error {
	if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	switch kind {
	case v1.HostPathDirectoryOrCreate:
		return os.MkdirAll(path, 0o755)
	case v1.HostPathFileOrCreate:
		return files.Touch(path, 0o644)
	}
	return nil
}
