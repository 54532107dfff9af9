package checkpoint

import (
	"fmt"
	"strings"

	"k8s.io/utils/cpuset"
	"k8s.io/utils/dump"

	"github.com/numalet/numalet/internal/checksum"
	"github.com/numalet/numalet/topology"
)

// The types below are hashed with their names and the names, order and types of their fields: all
// of these belong to the file format. Only the package differs, see kubelets.

type checkpointV2 struct {
	PolicyName    string
	DefaultCPUSet string
	Entries       map[string]map[string]string
	Checksum      uint64
}

type checkpointV3 struct {
	PolicyName    string
	DefaultCPUSet string
	Entries       map[string]map[string]string
	PodEntries    map[string]podCPUs
	Checksum      uint64
}

type podCPUs struct {
	CPUSet cpuset.CPUSet
}

func checksumV2(f fields) uint64 {
	return checksum.OfText(kubelets(dump.ForHash(checkpointV2{
		PolicyName: f.Policy, DefaultCPUSet: f.Default, Entries: f.Entries,
	})))
}

func checksumV3(f fields) (uint64, error) {
	pods := map[string]podCPUs{}
	for uid, entry := range f.PodEntries {
		cpus, err := topology.ParseCPUs(entry.CPUs)
		if err != nil {
			return 0, fmt.Errorf("pod %s: cpus %q: %w", uid, entry.CPUs, err)
		}
		pods[uid] = podCPUs{CPUSet: cpus}
	}
	text := dump.ForHash(checkpointV3{
		PolicyName: f.Policy, DefaultCPUSet: f.Default, Entries: f.Entries, PodEntries: pods,
	})
	text = replaceLast(text, "PodEntries:(map[string]checkpoint.podCPUs)",
		"PodEntries:(state.PodCPUAssignments)")
	return checksum.OfText(kubelets(text)), nil
}

// kubelets turns the rendering of one of our types into that of the kubelet's: a pointer to
// CPUManagerCheckpoint of package state, whose last field has its own type.
func kubelets(text string) string {
	_, content, _ := strings.Cut(text, "{")
	return "(*state.CPUManagerCheckpoint){" +
		replaceLast(content, "Checksum:(uint64)0}", "Checksum:(checksum.Checksum)0}")
}

// replaceLast leaves the names of pods and containers alone: they come before.
func replaceLast(text, old, by string) string {
	i := strings.LastIndex(text, old)
	if i < 0 {
		return text
	}
	return text[:i] + by + text[i+len(old):]
}
