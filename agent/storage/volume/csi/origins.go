package csi

import (
	"fmt"

	"k8s.io/mount-utils"

	"github.com/numalet/numalet/internal/files"
)

// mountInfo is the kernel's list of mounts (proc(5)).
const mountInfo = "/proc/self/mountinfo"

// mountOrigins says which directory of which file system is mounted, by path. Of several mounts on a
// path the last one counts.
func mountOrigins() (map[string]string, error) {
	all, err := mount.ParseMountInfo(mountInfo)
	out := make(map[string]string, len(all))
	for _, m := range all {
		out[files.MountPath(m.MountPoint)] = fmt.Sprintf("%d:%d %s", m.Major, m.Minor, m.Root)
	}
	return out, err
}
