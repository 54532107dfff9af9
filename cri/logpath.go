package cri

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// maxFileName is the longest file name that common file systems take, in bytes.
const maxFileName = 255

// PodLogDir is the directory that holds a pod's container logs, below the node's pod log root.
func PodLogDir(logsDir string, pod *v1.Pod) string {
	return filepath.Join(logsDir, pod.Namespace+"_"+pod.Name+"_"+string(pod.UID))
}

// ContainerLogPath is a container's log file, relative to its pod's log directory.
func ContainerLogPath(container string, attempt uint32) string {
	return filepath.Join(container, fmt.Sprintf("%d.log", attempt))
}

// LegacyLogName is the file name of the link to a container's log in /var/log/containers.
func LegacyLogName(pod *v1.Pod, container, containerID string) string {
	const suffix = ".log"
	name := pod.Name + "_" + pod.Namespace + "_" + container + "-" + containerID
	if len(name) > maxFileName-len(suffix) {
		name = name[:maxFileName-len(suffix)]
	}
	return name + suffix
}

// NextAttempt is the restart count for a container that the runtime does not know any more: one
// more than the highest log in podLogDir, 0 when it has none.
func NextAttempt(podLogDir, container string) (uint32, error) {
	entries, err := os.ReadDir(filepath.Join(podLogDir, container))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read log directory of container %q: %w", container, err)
	}
	var next uint32
	for _, entry := range entries {
		// Rotated logs keep the prefix: 3.log.20260102-030405[.gz].
		number, rest, found := strings.Cut(entry.Name(), ".")
		if !found || rest != "log" && !strings.HasPrefix(rest, "log.") {
			continue
		}
		if n, err := strconv.ParseUint(number, 10, 31); err == nil {
			next = max(next, uint32(n)+1)
		}
	}
	return next, nil
}
