package cluster_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/mount-utils"
)

// files returns what the agent has on the disk for the driver and these pods.
func (s *csiStory) files(t *testing.T, pods []string) (out []string) {
	mounts, err := mount.ParseMountInfo("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]mount.MountInfo{}
	for _, m := range mounts {
		at[m.MountPoint] = m
	}
	// Other stories have left what the kubelet does not remove.
	dirs := []string{filepath.Join(s.Root, "plugins/kubernetes.io/csi", s.d.Name)}
	if strings.Contains(s.volume, "Block") {
		dirs = append(dirs, filepath.Join(s.Root, "plugins/kubernetes.io/csi/volumeDevices"))
	}
	for _, uid := range pods {
		for _, dir := range []string{"volumes", "volumeDevices", "plugins", "volume-subpaths"} {
			dirs = append(dirs, filepath.Join(s.Root, "pods", uid, dir))
		}
	}
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil // it is not there
			}
			line, skip := describeFile(path, d, at)
			out = append(out, line)
			if skip {
				return fs.SkipDir
			}
			return nil
		})
	}
	return out
}

// describeFile returns a line about a file; skip: it is a mount, and its files are the volume's.
func describeFile(path string, d fs.DirEntry, mounts map[string]mount.MountInfo) (line string, skip bool) {
	info, err := d.Info()
	if err != nil {
		return path + ": " + err.Error(), false
	}
	line = fmt.Sprintf("%s %v", path, info.Mode())
	if m, is := mounts[path]; is {
		return fmt.Sprintf("%s mounted %s %s", line, m.FsType, m.Root), d.IsDir()
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		to, _ := os.Readlink(path)
		line += " -> " + to
	case strings.HasSuffix(path, ".json"):
		raw, _ := os.ReadFile(path)
		line += " " + strings.TrimSpace(string(raw))
	}
	return line, false
}
