package cri

import (
	"fmt"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
)

// maxFileName is the longest file name in bytes that common file systems allow.
const maxFileName = 255

// PodLogDir returns the directory of a pod's container logs, below the node's pod log root.
func PodLogDir(logsDir string, pod *v1.Pod) string {
	return filepath.Join(logsDir, pod.Namespace+"_"+pod.Name+"_"+string(pod.UID))
}

// ContainerLogPath returns the path of a container's log file, relative to its pod's log directory.
func ContainerLogPath(container string, attempt uint32) string {
	return filepath.Join(container, fmt.Sprintf("%d.log", attempt))
}

// LogsDirOf returns the node's pod log root, given a container's log file. Agents and runtimes
// create the directories between, and none of them is a link.
func LogsDirOf(path string) string { return filepath.Dir(filepath.Dir(filepath.Dir(path))) }

// LegacyLogName returns the name of the link to a container's log in /var/log/containers.
func LegacyLogName(pod *v1.Pod, container, containerID string) string {
	const suffix = ".log"
	name := pod.Name + "_" + pod.Namespace + "_" + container + "-" + containerID
	if len(name) > maxFileName-len(suffix) {
		name = name[:maxFileName-len(suffix)]
	}
	return name + suffix
}
