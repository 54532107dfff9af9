package handover

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cpumanager"
	cpucheckpoint "github.com/numalet/numalet/cpumanager/checkpoint"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/deviceplugin/checkpoint"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
	memorystate "github.com/numalet/numalet/topology/memory/state"
)

// kubeletFiles lists the kubelet's files, one for each kind. A new one is a line here, a field of
// Kubelet and a file of its own.
var kubeletFiles = []file{cpuFile, memoryFile, deviceFile}

// file is a file of the kubelet.
type file struct {
	// read fills in the file's field.
	read func(*Kubelet, dirs, time.Time) error
	// give adds what the file says that the pod's containers hold.
	give func(Kubelet, Node, cri.Pod, map[string]allocation.Container) error
	// export writes the file from the state.
	export func(dirs, allocation.State, Node) error
}

// maxFile bounds the kubelet's files, in bytes.
const maxFile = 256 << 20

// dirs are the folders of the files: root has those of the CPU and memory managers, plugins that
// of the device manager. If untouched, a file that cannot be used stays in its place.
type dirs struct {
	root, plugins string
	untouched     bool
}

// load reads a file; of a missing one it returns the zero value.
func load[T any](d dirs, path string, now time.Time, decode func([]byte) (T, error)) (none T, err error) {
	if !d.untouched {
		return files.Load(path, maxFile, now, decode)
	}
	raw, err := files.Read(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("read %s: %w", path, err)
	}
	value, err := decode(raw)
	if err != nil {
		return none, fmt.Errorf("read %s: %w", path, err)
	}
	return value, nil
}

// Node describes the CPUs, memory and devices of the node.
type Node struct {
	Online    cpuset.CPUSet
	Nodes     topology.NodeSet
	CPUs      *cpumanager.Static // nil: policy none
	Memory    *memory.Static     // likewise
	Inventory devicemanager.Inventory
}

// Kubelet has what a kubelet recorded on this node before the agent took over.
type Kubelet struct {
	CPUs    cpucheckpoint.State
	Memory  memorystate.Contents
	Devices []checkpoint.PodDevicesEntry
}

// ReadKubelet reads the kubelet's files: the device manager's in deviceDir, the others in root. A
// missing file says nothing. A file that cannot be used is moved aside, and the error has its new
// name; the other files are read all the same.
func ReadKubelet(root, deviceDir string, now time.Time) (k Kubelet, err error) {
	err = k.read(dirs{root: root, plugins: deviceDir}, now)
	return k, err
}

// LookAtKubelet is ReadKubelet for a node of another agent: it moves nothing.
func LookAtKubelet(root, deviceDir string) (k Kubelet, err error) {
	err = k.read(dirs{root, deviceDir, true}, time.Time{})
	return k, err
}

func (k *Kubelet) read(d dirs, now time.Time) (err error) {
	for _, f := range kubeletFiles {
		err = errors.Join(err, f.read(k, d, now))
	}
	return err
}

// On returns the account of the kubelet's files on a node.
func (k Kubelet) On(n Node) Account {
	return func(observed cri.Pod) (map[string]allocation.Container, error) {
		out := map[string]allocation.Container{}
		for _, f := range kubeletFiles {
			if err := f.give(k, n, observed, out); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
}

// Export writes the kubelet's files, for tools that read them and for a node that goes back to the
// kubelet.
func Export(root, deviceDir string, s allocation.State, n Node) (err error) {
	for _, f := range kubeletFiles {
		err = errors.Join(err, f.export(dirs{root: root, plugins: deviceDir}, s, n))
	}
	return err
}

// export writes a file in dir, unless err says that there is no content.
func export(dir, name string, content []byte, err error) error {
	if err == nil {
		err = files.Renew(filepath.Join(dir, name), content)
	}
	if err != nil {
		return fmt.Errorf("export %s: %w", name, err)
	}
	return nil
}

// holdings collects what of returns, by pod and container.
func holdings[T any](state allocation.State, of func(allocation.Container) (T, bool)) (
	out map[string]map[string]T) {
	out = map[string]map[string]T{}
	for uid, pod := range state.Pods {
		for name, c := range pod.Containers {
			one, has := of(c)
			if !has || name == allocation.WholePod {
				continue
			}
			if out[string(uid)] == nil {
				out[string(uid)] = map[string]T{}
			}
			out[string(uid)][name] = one
		}
	}
	return out
}

// pools collects what of returns of what pods have as a whole, by pod.
func pools[T any](state allocation.State, of func(allocation.Container) (T, bool)) map[string]T {
	out := map[string]T{}
	for uid, pod := range state.Pods {
		if one, has := of(pod.Pool()); has {
			out[string(uid)] = one
		}
	}
	return out
}
