package volume

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/agent/storage/diskusage"
	"github.com/numalet/numalet/agent/storage/volume/operation"
)

// plugin describes one type of volumes. Each type has a file of its own, and the core decides
// nothing by a type's name. Nothing else is needed to unmount and remove volumes in a pod's directory.
type plugin struct {
	from origin
	// field is the type's field of v1.VolumeSource or v1.PersistentVolumeSource, as in manifests.
	field string
	// name is the kubelet's name of the type, in metrics and, escaped, in paths.
	name string
	// stage is for types of which the node holds something that pods share; nil: no such thing.
	stage *stage
	// setUp makes a volume, or brings it up to date, and keeps what containers wrote into it. It
	// returns when to call it again although nothing changed; zero: never.
	setUp func(ctx context.Context, m *makers, t target) (again time.Time, err error)
	// held has what the type has of volumes beside the files in their pods' directories; nil: nothing.
	held *held
	// recall tells the type what a volume of a pod is, in case its record is lost; from says where that was
	// read. nil: the type needs no record.
	recall func(m *makers, pod *v1.Pod, uid types.UID, u used, from string)
	// driver has the verbs of volumes that drivers make; nil: the agent makes the type's volumes itself.
	driver *driver
	// path returns where the volume is on the node; nil: at its place in the pod's directory.
	path func(u used) string
	// mount makes m a mount that the runtime makes, from its own name of the volume's image; nil:
	// m mounts path.
	mount func(m *runtimeapi.Mount, pod *v1.Pod, u used, start Start) error
	// facts returns what follows from the volume's source; nil: nothing.
	facts func(u used) facts
	// block: containers have it as a device, and cannot mount it.
	block bool
	// relabel: the files are the pod's, so they get its SELinux label.
	relabel bool
	// written: the agent writes the files, and writes them again when their sources change.
	// Containers only read them.
	written bool
}

// origin says what can have volumes of a type: pods themselves, PVCs of pods, or both.
type origin int

const (
	inPods origin = 1 << iota
	byPVCs
)

// stage has what a volume is a mount of ready on the node, for all pods that have the volume.
type stage struct {
	do func(m *makers, t target) error
	// undo does nothing as long as a pod has a mount of the volume.
	undo func(ctx context.Context, m *makers, volume string) error
}

// held has what a type has of volumes beside the files in their pods' directories.
type held struct {
	// release takes back what a pod has, before its directory is unmounted. As long as it fails,
	// volumes of the type stay mounted.
	release func(ctx context.Context, m *makers, pod types.UID) error
	// leave does the same for one volume, by its name; nil: nothing is to be done.
	leave func(ctx context.Context, m *makers, pod types.UID, name string) error
	// known reports whether the type has a record of a volume with a file system or a device that an earlier
	// run has left; nil: the type needs none.
	known func(c Config, pod types.UID, name string) bool
	// lost reports whether the type has a volume of the pod whose record is lost; nil: it never has.
	lost func(c Config, pod types.UID) bool
	// inside is the name of what is mounted in a volume's directory; "": the directory itself.
	inside string
}

// driver asks the drivers of volumes about them, and has them grow. Such a type counts itself that its volumes
// are attached and taken back.
type driver struct {
	// lacks returns why the volume's driver cannot make it now; nil: it can.
	lacks func(ctx context.Context, c Config, pod *v1.Pod, u used) error
	// published reports whether another pod of the node has the volume, so that its driver only has to
	// publish it for this one.
	published func(c Config, pod *v1.Pod, u used) bool
	// renewed reports whether the volume is published again and again.
	renewed func(c Config, u used) bool
	// contexts reports whether the driver mounts with an SELinux context.
	contexts func(ctx context.Context, c Config, u used) (bool, error)
	// expand makes the file system of a volume that is set up as large as g says; fresh: the volume is being
	// set up. After an error, said says how it ended.
	expand func(ctx context.Context, c Config, g growing, fresh bool) (said operation.Growth, err error)
	// room returns what the volume has of space.
	room func(c Config, pod *v1.Pod, u used) (diskusage.Room, error)
	// health returns the adverse conditions of the volume.
	health func(c Config, pod *v1.Pod, u used) ([]v1.VolumeHealthCondition, error)
}

// inside returns the name of what is mounted in a volume's directory.
func (p plugin) inside() string {
	if p.held == nil {
		return ""
	}
	return p.held.inside
}

// facts hold what follows from a volume's source.
type facts struct {
	mounted  bool   // something is mounted on the volume's place, maybe with mount options
	readOnly bool   // for all containers
	own      bool   // the agent makes it of the node's disk or memory
	onDisk   bool   // of the disk
	counted  bool   // the kernel may count what is in it
	ordinary bool   // any pod can have it at any time: nothing that it is made of can be missing
	served   bool   // a server or driver has the files
	contexts bool   // it can be mounted with an SELinux context
	polled   bool   // what it is made of changes without an event
	driver   string // the name of the driver that makes it; "": the agent does
}

// facts returns what follows from the source of a volume.
func (u used) facts() facts {
	if u.plugin.facts == nil {
		return facts{}
	}
	return u.plugin.facts(u)
}

// target is a volume of a pod that is being set up.
type target struct {
	pod    *v1.Pod
	podDir string
	used
	have found // what the pod's directory has of it
	room *int  // bytes left for the files that the agent writes for the pod
}

// newTarget returns the pod's volume at that place.
func newTarget(pod *v1.Pod, podDir string, all []used, have []found, p place) target {
	t := target{pod: pod, podDir: podDir, have: found{place: p}}
	if i := slices.IndexFunc(all, func(u used) bool { return u.place() == p }); i >= 0 {
		t.used = all[i]
	}
	if i := slices.IndexFunc(have, func(f found) bool { return f.place == p }); i >= 0 {
		t.have = have[i]
	}
	return t
}

func (t target) path() string  { return t.used.path(t.podDir) }
func (t target) ready() string { return t.place().ready(t.podDir, t.plugin.written) }

// table has the types of volumes. It is made once, since each look at a pod goes through it, and never written to.
var table struct {
	once  sync.Once
	types []plugin
}

func plugins() []plugin {
	table.once.Do(func() {
		table.types = []plugin{
			emptyDirs(), hostPaths(), configMaps(), secrets(), downwardAPIs(), projections(),
			images(), nfs(), iscsi(), iscsiBlocks(), fc(), fcBlocks(), locals(), blocks(), csiVolumes(),
			csiBlocks(),
		}
	})
	return table.types
}

// typeNamed returns the type of volumes with a file system that has the name; without one: there is
// none.
func typeNamed(name string) plugin {
	for _, p := range plugins() {
		if p.name == name && !p.block {
			return p
		}
	}
	return plugin{}
}

// pluginFor returns the plugin for the volume's source.
func pluginFor(volume v1.Volume) (plugin, error) {
	kind := sourceKind(volume.VolumeSource)
	var known []string
	for _, p := range plugins() {
		if p.from&inPods == 0 {
			continue
		}
		if p.field == kind {
			return p, nil
		}
		known = append(known, p.field)
	}
	known = append(known, "persistentVolumeClaim")
	return plugin{}, unsupported("volume", volume.Name, kind, known)
}

// Unsupported returns an error that names the volumes that containers of the pod use and whose
// types this version does not support; nil: there are none. never: no version will support one of
// them. It does not look at what PVCs are bound to.
func Unsupported(pod *v1.Pod) (never bool, err error) {
	_, err = usedVolumes(pod)
	_, never = errors.AsType[goneError](err)
	return never, err
}

// persistentPlugin returns the plugin for what a PVC is bound to.
func persistentPlugin(volume *v1.PersistentVolume) (plugin, error) {
	kind := sourceKind(volume.Spec.PersistentVolumeSource)
	var known []string
	for _, p := range plugins() {
		if p.from&byPVCs == 0 || p.block != isBlock(volume) {
			continue
		}
		if p.field == kind {
			return p, nil
		}
		known = append(known, p.field)
	}
	what := "persistent volume"
	if isBlock(volume) {
		what = "persistent volume with volumeMode Block"
	}
	return plugin{}, unsupported(what, volume.Name, kind, known)
}

func unsupported(what, name, kind string, known []string) error {
	if instead := insteadOf(kind); instead != "" {
		return goneError(fmt.Sprintf("%s %q: a volume of type %s is not supported, and the pod does not "+
			"start: %s", what, name, kind, instead))
	}
	words := strings.Join(known, ", ")
	if at := strings.LastIndex(words, ", "); at >= 0 {
		words = words[:at] + " or " + words[at+2:]
	}
	return fmt.Errorf("%s %q: a volume of type %s is not supported yet, and the pod waits for it; "+
		"use %s", what, name, kind, words)
}

// sourceKind returns the field name of a volume's source, "" if it has none. VolumeSource is a
// struct with one pointer for each type, and so is PersistentVolumeSource.
func sourceKind[T v1.VolumeSource | v1.PersistentVolumeSource](source T) string {
	var kinds []string
	fields := reflect.ValueOf(source)
	for i := range fields.NumField() {
		if !fields.Field(i).IsNil() {
			name, _, _ := strings.Cut(fields.Type().Field(i).Tag.Get("json"), ",")
			kinds = append(kinds, name)
		}
	}
	return strings.Join(kinds, "+")
}
