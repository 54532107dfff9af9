package volume

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// plugin is what there is to know of one type of volumes. Each has a file of its own; the rest of
// the package names none. To take volumes down needs no plugin: whatever is mounted below the
// pod's directory is unmounted, and the directory removed.
type plugin struct {
	// field is the type's field of v1.VolumeSource, as manifests write it.
	field string
	// name is the kubelet's name of the type, in metrics and, escaped, in paths.
	name string
	// setUp makes a volume, or brings it up to date. What containers made of it stays as it is. It
	// says when that is to be done again although nothing changed; zero: never.
	setUp func(ctx context.Context, v *Volumes, t target) (again time.Time, err error)
	// path is where the volume is on the node; nil: at its place in the pod's directory.
	path func(u used) string
	// mounted reports whether something is mounted on the volume's place; nil: never.
	mounted func(u used) bool
	// persistent: persistent volumes can be of this type; options: with mount options.
	persistent, options bool
	// block: containers have it as a device, and cannot mount it.
	block bool
	// relabel: the files are the pod's, so they get its SELinux label.
	relabel bool
	// written: the files are the agent's, which writes them again when what they are made of
	// changes. Containers read them only.
	written bool
}

// target is a volume that is set up for a pod.
type target struct {
	pod    *v1.Pod
	podDir string
	used
	have found // what is there of it
	room *int  // how many bytes the pod's files may still have, of those that the agent writes
}

// newTarget is the pod's volume of that place.
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

func plugins() []plugin {
	return []plugin{
		emptyDirs(), hostPaths(), configMaps(), secrets(), downwardAPIs(), projections(),
		images(), nfs(),
	}
}

// isWritten reports whether the agent writes into volumes of the type of that name.
func isWritten(name string) bool {
	return slices.ContainsFunc(plugins(), func(p plugin) bool { return p.name == name && p.written })
}

// pluginFor picks the plugin by the volume's source. A volume without any is an emptyDir, as the
// API defaults it.
func pluginFor(volume v1.Volume) (plugin, error) {
	kind := sourceKind(volume.VolumeSource)
	if kind == "" {
		return emptyDirs(), nil
	}
	var known []string
	for _, p := range plugins() {
		if p.field == kind {
			return p, nil
		}
		known = append(known, p.field)
	}
	known = append(known, "persistentVolumeClaim")
	return plugin{}, unsupported("volume", volume.Name, kind, known)
}

// Unsupported names the volumes that containers of the pod use and whose types this version does not
// bring; nil: there are none. What claims are bound to is not looked at.
func Unsupported(pod *v1.Pod) error {
	_, err := usedVolumes(pod)
	return err
}

// persistentPlugin is the plugin for what a claim is bound to.
func persistentPlugin(volume *v1.PersistentVolume) (plugin, error) {
	kind := sourceKind(volume.Spec.PersistentVolumeSource)
	var known []string
	for _, p := range append(plugins(), locals(), blocks()) {
		if !p.persistent || p.block != isBlock(volume) {
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
	words := strings.Join(known, ", ")
	if at := strings.LastIndex(words, ", "); at >= 0 {
		words = words[:at] + " or " + words[at+2:]
	}
	return fmt.Errorf("%s %q: a volume of type %s is not supported yet, and the pod waits for it; "+
		"use %s", what, name, kind, words)
}

// sourceKind is the field name of a volume's source, "" when it has none. VolumeSource is a struct
// with a pointer for each, and so is that of a persistent volume.
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
