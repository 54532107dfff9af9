package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/mount-utils"

	"github.com/numalet/numalet/agent/storage/volume/operation"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/topology/podspec"
)

// leastAgain is the shortest time after which files are made again because they expire.
const leastAgain = 10 * time.Second

// Config says where pods' files are and what the node offers them.
type Config struct {
	// Root is the agent's root directory, an absolute path; it is created when missing.
	Root string
	// Mounter mounts; nil means the host's mount and umount commands.
	Mounter Mounter
	// ClusterDomain completes FQDNs in /etc/hosts.
	ClusterDomain string
	// HostsFile is the hosts file for pods in the host's network; "" means /etc/hosts.
	HostsFile string
	// Enabled reports whether a feature gate is on; nil: none is.
	Enabled func(gate string) bool
	// Count has the kernel count what is written to an empty directory; nil: it is not wanted. A
	// filesystem that cannot count is no error.
	Count func(dir string) error
	// Objects reads ConfigMaps, Secrets and credentials; nil: there is no API server.
	Objects Objects
	// Facts returns the node's facts for files; their addresses are not used. The allocatable memory is
	// the largest size of a memory-backed emptyDir; 0 leaves the size of those without a limit to the
	// kernel.
	Facts func() cri.Facts
	// PVCs reads what persistent volume claims are bound to; nil: there is no API server.
	PVCs PVCs
	// Labels returns the node's labels.
	Labels func() map[string]string
	Ends
	Makers
}

// Ends hear what happens. None of them may block.
type Ends struct {
	// Done is called after each operation on a volume.
	Done func(operation.Done)
	// Tell sends an event about a pod or a persistent volume.
	Tell func(about runtime.Object, eventType, reason, message string)
	// Limit is called once for a pod that has waited as long as a kubelet has it wait for its
	// volumes while the node takes no more of a driver, with the kubelet's message. Optional.
	Limit func(pod *v1.Pod, message string)
}

// node has what the parts of Volumes work on: the pods' directories, the file systems, and what the
// pods' PVCs are bound to.
type node struct {
	layout
	filesystems
	pvcs *boundPVCs
	cfg  Config
}

// inUse is a volume of a pod that is set up, or being set up.
type inUse struct {
	pod    *v1.Pod
	podDir string
	used
}

// inUse yields the volumes of pods, in their order, without those whose PVC is not known. It leaves out pods
// with a volume that is not supported.
func (n *node) inUse(pods []*v1.Pod) iter.Seq[inUse] {
	return func(yield func(inUse) bool) {
		for _, pod := range pods {
			dir, err := n.podDir(pod.UID)
			if err != nil {
				continue
			}
			all, err := n.pvcs.usedNow(pod)
			if err != nil {
				continue
			}
			for _, u := range all {
				if !yield(inUse{pod, dir, u}) {
					return
				}
			}
		}
	}
}

// isThere reports whether the volume was made. A device is made with its link; another one
// outside the pod's directory counts as made if that directory exists.
func (u inUse) isThere() bool {
	path := u.place().ready(u.podDir, u.plugin.written)
	switch {
	case u.plugin.block:
		path = u.place().device(u.podDir)
	case u.plugin.path != nil:
		path = u.podDir
	}
	_, err := os.Lstat(path)
	return err == nil
}

// Volumes keeps the files of pods. Methods may run at the same time for different pods; calls for
// one pod come one after another.
type Volumes struct {
	Containers Containers
	Records    Records
	Meter      *Meter
	Grower     *Grower

	node       *node
	makers     *makers
	due        *due
	operations *operations
	remains    *remains
}

// Feature gates of volumes.
const (
	emptyDirModes = "EmptyDirVolumeMode"
	fileOwners    = "AtomicWriteVolumeUserFields" // KEP-5936
)

func (c Config) enabled(gate string) bool { return c.Enabled != nil && c.Enabled(gate) }

// New creates the root directory if it is missing, and reads what earlier runs recorded.
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
	n := &node{cfg: cfg, layout: layout{root},
		filesystems: filesystems{mounter: cfg.Mounter, asRoot: os.Geteuid() == 0, calls: &calls{}}}
	if n.mounter == nil {
		host, ok := mount.New(cfg.MounterPath).(*mount.Mounter)
		if !ok {
			return nil, errors.New("the host cannot mount")
		}
		n.mounter = hostMounter{host}
	}
	if n.pvcs, err = newBoundPVCs(n.layout); err != nil {
		return nil, err
	}
	records, grower := Records{n.layout}, &Grower{node: n, known: growths{all: map[string]grown{}}}
	m := newMakers(n, grower)
	v := &Volumes{
		Containers: Containers{n, records}, Records: records, Grower: grower,
		node: n, makers: m, due: &due{renews: n.renews}, operations: &operations{node: n},
	}
	v.Meter = &Meter{node: n, due: v.due}
	m.recallPVCs()
	v.remains, err = newRemains(n)
	return v, err
}

// Orphans returns the pods that have a directory and are not in live, ascending.
func (v *Volumes) Orphans(live sets.Set[types.UID]) ([]types.UID, error) { return v.node.orphans(live) }

// Changed records that something changed that files of the pod are made of.
func (v *Volumes) Changed(pod types.UID) { v.due.changed(pod) }

// Due returns when to call Update for the pod, maybe a time in the past; zero: not before something
// changes.
func (v *Volumes) Due(pod *v1.Pod, now time.Time) time.Time { return v.due.at(pod, now) }

// SetUp makes the pod's directory and every volume that a container uses. It leaves existing
// volumes alone, but updates the files that the agent writes. If a volume's type is not supported,
// it makes nothing. The error joins those of all volumes.
func (v *Volumes) SetUp(ctx context.Context, pod *v1.Pod) error {
	return v.bring(ctx, pod, false)
}

// Update updates the files that the agent writes. The pod has been set up, maybe by an earlier run
// of the agent.
func (v *Volumes) Update(ctx context.Context, pod *v1.Pod) error {
	return v.bring(ctx, pod, true)
}

// bring carries out the steps towards the pod's volumes, or only its updates. It removes nothing
// while some volume is unknown.
func (v *Volumes) bring(ctx context.Context, pod *v1.Pod, updates bool) error {
	dir, err := v.node.podDir(pod.UID)
	if err != nil {
		return err
	}
	used, err := usedVolumes(pod)
	if err := errors.Join(check(pod), err); err != nil {
		return err
	}
	for _, name := range []string{volumesDir, pluginsDir} {
		if err := os.MkdirAll(filepath.Join(dir, name), dirMode); err != nil {
			return fmt.Errorf("create pod directory: %w", err)
		}
	}
	v.due.begin(pod)
	have, err := v.node.find(dir)
	if err != nil {
		return err
	}
	var errs []error
	var missed time.Time
	if updates {
		used, missed = v.node.resolved(ctx, pod, used)
	} else {
		used, errs = v.node.resolve(ctx, pod, used)
	}
	v.makers.recallUsed(pod, used)
	room, unknown := maxPodContent, len(errs) > 0
	steps := slices.DeleteFunc(reconcile(v.node.cfg.want(used, updates), have), func(s step) bool {
		return updates && s.verb != update || unknown && s.verb == remove
	})
	again, failed := v.carryOut(ctx, steps, func(p place) target {
		t := newTarget(pod, dir, used, have, p)
		t.room = &room
		return t
	})
	errs, again = append(errs, failed...), await.Earlier(again, missed)
	if least := time.Now().Add(leastAgain); !again.IsZero() && again.Before(least) {
		again = least
	}
	err = errors.Join(errs...)
	v.due.done(pod.UID, again, err)
	v.limit(pod, err)
	return err
}

// find returns what is in a pod's directory. It touches no file system that may hang.
func (f filesystems) find(podDir string) ([]found, error) {
	all, err := places(podDir)
	out := make([]found, len(all))
	for i, p := range all {
		mounted, e := f.isMounted(p.mountPoint(podDir))
		_, incomplete := os.Stat(p.ready(podDir, typeNamed(p.plugin).written))
		out[i] = found{place: p, mounted: mounted, complete: incomplete == nil}
		err = errors.Join(err, e)
	}
	return out, err
}

// want returns what should be in a pod's directory. updates: what is there is brought up to date.
func (c Config) want(all []used, updates bool) []wanted {
	out := make([]wanted, len(all))
	for i, u := range all {
		out[i] = wanted{place: u.place(), outside: u.plugin.path != nil,
			written: u.plugin.written, mounted: u.facts().mounted,
			renewed: updates && c.isRenewed(u)}
	}
	return out
}

// carryOut carries out the steps: removals, and volumes whose files the agent writes, in their order; all
// other volumes each by itself, so that making one whose server or driver hangs delays no other one. The
// errors come in the order of the steps.
func (v *Volumes) carryOut(ctx context.Context, steps []step, of func(place) target) (
	again time.Time, errs []error) {
	times := make([]time.Time, len(steps))
	errs = make([]error, len(steps))
	var apart sync.WaitGroup
	for i, s := range steps {
		if ctx.Err() != nil {
			break
		}
		t := of(s.place)
		do := func() { times[i], errs[i] = v.do(ctx, s, t) }
		if s.verb == remove || t.plugin.written {
			do()
		} else {
			apart.Go(do)
		}
	}
	apart.Wait()
	for _, at := range times {
		again = await.Earlier(again, at)
	}
	if errors.Join(errs...) == nil {
		errs = append(errs, ctx.Err()) // some steps may not have begun
	}
	return again, errs
}

// do carries out one step.
func (v *Volumes) do(ctx context.Context, s step, t target) (again time.Time, err error) {
	if s.verb == remove {
		err := v.makers.leave(ctx, t.pod.UID, s.place)
		if err == nil {
			err = v.node.removeVolume(ctx, s.place.in(t.podDir))
		}
		if err != nil {
			return again, fmt.Errorf("volume %v, which the pod does not use: %w", s.place, err)
		}
		return again, v.makers.unstage(ctx, t.pod.UID, s.place)
	}
	if err := v.node.cfg.persistentFits(t.used); err != nil {
		return again, &cri.ObjectError{Err: err}
	}
	again, err = v.operations.setUp(ctx, v.makers, t)
	return again, t.failed(err)
}

// failed says in the kubelet's words which part of setting up a volume failed; nil: none.
func (u used) failed(err error) error {
	if err == nil {
		return nil
	}
	return unmade{u.volume.Name, u.inWords(err)}
}

func (u used) inWords(err error) error {
	what := u.pick("SetUp", operation.MapBlockVolume)
	if failed, is := errors.AsType[*operation.Error](err); is {
		what = failed.Part
	}
	if u.plugin.block {
		return &MapError{u.place().name, what, err}
	}
	return fmt.Errorf("MountVolume.%s failed for volume %q : %w", what, u.place().name, err)
}

// fullName returns the type's name with the driver of the volume, as in metrics.
func (u used) fullName() string {
	if driver := u.facts().driver; driver != "" {
		return u.plugin.name + ":" + driver
	}
	return u.plugin.name
}

// used is a volume that a container uses, with its plugin.
type used struct {
	volume v1.Volume
	plugin plugin
	// PVC is the name of the volume's PVC, and pv what it is bound to. Until pv is known there
	// is no plugin. A volume of an in-tree type has the volume of a driver that it stands for.
	pvc      string
	pv       *v1.PersistentVolume
	migrated bool
	label    string                    // the SELinux label that it is mounted with; "": none
	read     *v1.PersistentVolumeClaim // as BoundPVC has it
	readOnly bool                      // by the PVC's reference, or by the volume's own source
}

func (u used) place() place {
	if u.pv != nil {
		return place{u.plugin.name, pathName(u.pv.Name)}
	}
	return place{u.plugin.name, u.volume.Name}
}

// path returns where the volume is on the node once it is set up.
func (u used) path(podDir string) string {
	if u.plugin.path != nil {
		return u.plugin.path(u)
	}
	return filepath.Join(u.place().in(podDir), u.plugin.inside())
}

// usedVolumes returns the pod's volumes that some container mounts or has as a device, in the order
// of the spec. The error names all that are not supported.
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
		if !names[volume.Name] {
			continue
		}
		u, err := newUsed(pod, volume)
		errs = append(errs, err)
		out = append(out, u)
	}
	return out, errors.Join(errs...)
}
