package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/mount-utils"

	"github.com/numalet/numalet/topology/podspec"
)

const (
	podsDir = "pods"
	// containersDir, below a pod's directory, has the termination messages.
	containersDir = "containers"
	subPathsDir   = "volume-subpaths"

	dirMode = 0o750
)

// Mounter is what Volumes needs to mount; k8s.io/mount-utils has one for the host and one in
// memory.
type Mounter interface {
	Mount(source, target, fstype string, options []string) error
	MountSensitiveWithoutSystemdWithMountFlags(source, target, fstype string,
		options, sensitiveOptions, mountFlags []string) error
	Unmount(target string) error
	List() ([]mount.MountPoint, error)
}

// Config says where pods' files are and what the node offers them.
type Config struct {
	// Root is the agent's root directory, an absolute path; it is created when missing.
	Root string
	// Mounter mounts; nil means the host's mount and umount commands.
	Mounter Mounter
	// ClusterDomain completes FQDNs in /etc/hosts.
	ClusterDomain string
	// HostsFile is what pods in the host's network see as /etc/hosts; "" means /etc/hosts.
	HostsFile string
	// Memory is the largest memory-backed emptyDir in bytes, the node's allocatable memory at the
	// moment; 0 or a nil function leaves the size of those without a limit to the kernel.
	Memory func() int64
	// RecursiveReadOnly: the runtime can make mounts read-only with all that is mounted below.
	RecursiveReadOnly bool
}

// Volumes looks after the files of pods. Methods may run at the same time for different pods;
// calls for one pod come one after another.
type Volumes struct {
	cfg     Config
	root    string // Root without symbolic links, as the kernel's list of mounts shows it
	mounter Mounter
	bind    bool // subPaths are bind-mounted
}

// New creates the root directory when it is missing.
func New(cfg Config) (*Volumes, error) {
	if !filepath.IsAbs(cfg.Root) {
		return nil, fmt.Errorf("root directory %q is not an absolute path", cfg.Root)
	}
	if err := os.MkdirAll(filepath.Join(cfg.Root, podsDir), dirMode); err != nil {
		return nil, fmt.Errorf("create directory of pods: %w", err)
	}
	root, err := filepath.EvalSymlinks(cfg.Root)
	if err != nil {
		return nil, fmt.Errorf("resolve root directory: %w", err)
	}
	cfg.HostsFile = cmp.Or(cfg.HostsFile, "/etc/hosts")
	v := &Volumes{cfg: cfg, root: root, mounter: cfg.Mounter, bind: os.Geteuid() == 0}
	if v.mounter == nil {
		v.mounter = mount.New("")
	}
	return v, nil
}

// SetUp makes the pod's directory and every volume that a container mounts. What is there
// already stays as it is. Nothing is made if a volume is of a kind that is not supported.
func (v *Volumes) SetUp(ctx context.Context, pod *v1.Pod) error {
	dir, err := v.podDir(pod.UID)
	if err != nil {
		return err
	}
	volumes := usedVolumes(pod)
	plugins, err := pluginsFor(volumes)
	if err := errors.Join(check(pod), err); err != nil {
		return err
	}
	for _, name := range []string{"volumes", "plugins"} {
		if err := os.MkdirAll(filepath.Join(dir, name), dirMode); err != nil {
			return fmt.Errorf("create pod directory: %w", err)
		}
	}
	for i, volume := range volumes {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := plugins[i].setUp(v, pod, dir, volume); err != nil {
			return fmt.Errorf("volume %q: %w", volume.Name, err)
		}
	}
	return nil
}

// usedVolumes are the pod's volumes that some container mounts, in the order of the spec.
func usedVolumes(pod *v1.Pod) []v1.Volume {
	used := map[string]bool{}
	for container := range podspec.Containers(pod) {
		for _, m := range container.VolumeMounts {
			used[m.Name] = true
		}
	}
	var out []v1.Volume
	for _, volume := range pod.Spec.Volumes {
		if used[volume.Name] {
			out = append(out, volume)
		}
	}
	return out
}

// check refuses names that would lead out of the pod's directory. Validation of manifests refuses
// them too; here they become paths.
func check(pod *v1.Pod) error {
	var errs []error
	for _, volume := range pod.Spec.Volumes {
		errs = append(errs, component("volume", volume.Name))
	}
	for container := range podspec.Containers(pod) {
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

// podDir is the directory of a pod's files.
func (v *Volumes) podDir(uid types.UID) (string, error) {
	if err := component("pod UID", string(uid)); err != nil {
		return "", err
	}
	return filepath.Join(v.root, podsDir, string(uid)), nil
}
