package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/topology/podspec"
)

const (
	podsDir = "pods"
	// containersDir, below a pod's directory, has the termination messages.
	containersDir = "containers"
	volumesDir    = "volumes"
	subPathsDir   = "volume-subpaths"
	pluginsDir    = "plugins"

	dirMode = 0o750
)

// layout knows where pods' files are. It is a value.
type layout struct {
	root string // without symbolic links, as in the kernel's list of mounts
}

// podDir returns the directory of a pod's files.
func (l layout) podDir(uid types.UID) (string, error) {
	if err := component("pod UID", string(uid)); err != nil {
		return "", err
	}
	return filepath.Join(l.root, podsDir, string(uid)), nil
}

// orphans returns the pods that have a directory and are not in live, ascending.
func (l layout) orphans(live sets.Set[types.UID]) ([]types.UID, error) {
	entries, err := os.ReadDir(filepath.Join(l.root, podsDir))
	if err != nil {
		return nil, fmt.Errorf("list directories of pods: %w", err)
	}
	var out []types.UID
	for _, entry := range entries {
		if uid := types.UID(entry.Name()); entry.IsDir() && !live.Has(uid) {
			out = append(out, uid)
		}
	}
	return out, nil
}

// place identifies a volume in a pod's directory.
type place struct {
	plugin string // its type's name
	name   string
}

func (p place) String() string { return pathName(p.plugin) + "/" + p.name }

func (p place) in(podDir string) string {
	return filepath.Join(podDir, volumesDir, pathName(p.plugin), p.name)
}

// mountPoint returns where the volume is mounted.
func (p place) mountPoint(podDir string) string {
	return filepath.Join(p.in(podDir), typeNamed(p.plugin).inside())
}

// ready returns the file that marks the volume as complete, where the kubelet has it. Volumes that
// the agent writes are wrapped in an emptyDir there.
func (p place) ready(podDir string, written bool) string {
	if written {
		p = place{emptyDirName, "wrapped_" + p.name}
	}
	return filepath.Join(podDir, pluginsDir, pathName(p.plugin), p.name, "ready")
}

// device returns the link to a block volume that containers have as a device.
func (p place) device(podDir string) string {
	return filepath.Join(podDir, devicesDir, pathName(p.plugin), p.name)
}

// pathName returns a type's name as an element of a path, and typeName the name of such an element.
func pathName(name string) string { return strings.ReplaceAll(name, "/", "~") }
func typeName(path string) string { return strings.ReplaceAll(path, "~", "/") }

// places returns the volumes in a pod's directory, sorted. It does not look into them, so it never
// hangs.
func places(podDir string) (out []place, err error) {
	names := func(dir string) []string {
		entries, e := os.ReadDir(dir)
		if e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("list volumes: %w", e))
		}
		var out []string
		for _, entry := range entries {
			if entry.IsDir() {
				out = append(out, entry.Name())
			}
		}
		slices.Sort(out)
		return out
	}
	dir := filepath.Join(podDir, volumesDir)
	for _, kind := range names(dir) {
		for _, name := range names(filepath.Join(dir, kind)) {
			out = append(out, place{typeName(kind), name})
		}
	}
	return out, err
}

// check refuses names that would lead out of the pod's directory. Validation of manifests refuses
// them too; here they become paths.
func check(pod *v1.Pod) error {
	var errs []error
	for _, volume := range pod.Spec.Volumes {
		errs = append(errs, component("volume", volume.Name))
	}
	for container := range podspec.All(pod) {
		errs = append(errs, component("container", container.Name))
	}
	return errors.Join(errs...)
}

// component refuses a name that is not a single element of a path.
func component(what, name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%s name %q cannot be part of a path", what, name)
	}
	return nil
}
