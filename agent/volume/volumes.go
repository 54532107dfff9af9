package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/mount-utils"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

const (
	podsDir = "pods"
	// containersDir, below a pod's directory, has the termination messages.
	containersDir = "containers"
	subPathsDir   = "volume-subpaths"

	dirMode = 0o750

	// leastAgain is the least time after which files are made again for their age.
	leastAgain = 10 * time.Second
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
	// Objects are what some volumes are made of; nil: there is no API server.
	Objects Objects
	// Facts are what files tell of the node; their addresses are not looked at.
	Facts func() cri.Facts
	// Done is told of each volume that was set up, or was not, with its type's name; nil: nobody
	// is. It must not block.
	Done func(plugin string, took time.Duration, err error)
	// RecursiveReadOnly: the runtime can make mounts read-only with all that is mounted below.
	RecursiveReadOnly bool
}

// Volumes looks after the files of pods. Methods may run at the same time for different pods;
// calls for one pod come one after another.
type Volumes struct {
	due
	cfg     Config
	root    string // Root without symbolic links, as the kernel's list of mounts shows it
	mounter Mounter
	asRoot  bool // there are mounts, and files that others own
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
	v := &Volumes{cfg: cfg, root: root, mounter: cfg.Mounter, asRoot: os.Geteuid() == 0}
	if v.mounter == nil {
		v.mounter = mount.New("")
	}
	return v, nil
}

// SetUp makes the pod's directory and every volume that a container uses. What is there already
// stays as it is, but for files that the agent writes: those are brought up to date. Nothing is
// made if a volume is of a kind that is not supported. The error joins those of all volumes.
func (v *Volumes) SetUp(ctx context.Context, pod *v1.Pod) error {
	return v.setUp(ctx, pod, func(plugin) bool { return true })
}

// Update brings the files up to date that the agent writes. The pod has been set up, maybe by an
// earlier run of the agent.
func (v *Volumes) Update(ctx context.Context, pod *v1.Pod) error {
	return v.setUp(ctx, pod, func(p plugin) bool { return p.written })
}

func (v *Volumes) setUp(ctx context.Context, pod *v1.Pod, which func(plugin) bool) error {
	dir, err := v.podDir(pod.UID)
	if err != nil {
		return err
	}
	used, err := usedVolumes(pod)
	if err := errors.Join(check(pod), err); err != nil {
		return err
	}
	for _, name := range []string{"volumes", "plugins"} {
		if err := os.MkdirAll(filepath.Join(dir, name), dirMode); err != nil {
			return fmt.Errorf("create pod directory: %w", err)
		}
	}
	v.begin(pod)
	var again time.Time
	var errs []error
	for _, u := range used {
		if !which(u.plugin) {
			continue
		}
		next, err := v.setUpOne(ctx, u.plugin, target{pod, dir, u.volume})
		again, errs = earlier(again, next), append(errs, err)
		if ctx.Err() != nil {
			errs = append(errs, ctx.Err())
			break
		}
	}
	if soon := time.Now().Add(leastAgain); !again.IsZero() && again.Before(soon) {
		again = soon
	}
	err = errors.Join(errs...)
	v.done(pod.UID, again, err)
	return err
}

func (v *Volumes) setUpOne(ctx context.Context, p plugin, t target) (time.Time, error) {
	began := time.Now()
	again, err := p.setUp(ctx, v, t)
	if v.cfg.Done != nil {
		v.cfg.Done(p.name, time.Since(began), err)
	}
	if err != nil {
		return again, fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", t.volume.Name, err)
	}
	return again, nil
}

// used is a volume that a container uses, with its plugin.
type used struct {
	volume v1.Volume
	plugin plugin
}

// usedVolumes are the pod's volumes that some container mounts or has as a device, in the order of
// the spec. The error names all that are not supported.
func usedVolumes(pod *v1.Pod) (out []used, err error) {
	names := map[string]bool{}
	for container := range podspec.All(pod) {
		for _, m := range container.VolumeMounts {
			names[m.Name] = true
		}
		for _, d := range container.VolumeDevices {
			names[d.Name] = true
		}
	}
	var errs []error
	for _, volume := range pod.Spec.Volumes {
		if names[volume.Name] {
			p, err := pluginFor(volume)
			out, errs = append(out, used{volume, p}), append(errs, err)
		}
	}
	return out, errors.Join(errs...)
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

// podDir is the directory of a pod's files.
func (v *Volumes) podDir(uid types.UID) (string, error) {
	if err := component("pod UID", string(uid)); err != nil {
		return "", err
	}
	return filepath.Join(v.root, podsDir, string(uid)), nil
}
