package csi

import (
	"fmt"
	"strings"

	"k8s.io/mount-utils"
)

// mountInfo is the kernel's list of mounts (proc(5)).
const mountInfo = "/proc/self/mountinfo"

// plain undoes the escapes of paths there.
var plain = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// mountOrigins says which directory of which file system is mounted, by path. Of several mounts on a
// path the last one counts.
func mountOrigins() (map[string]string, error) {
	all, err := mount.ParseMountInfo(mountInfo)
	out := make(map[string]string, len(all))
	for _, m := range all {
		out[plain.Replace(m.MountPoint)] = fmt.Sprintf("%d:%d %s", m.Major, m.Minor, m.Root)
	}
	return out, err
}
