package volume

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// plugin is what there is to know of one type of volumes. Each has a file of its own; the rest of
// the package names none. To take volumes down needs no plugin: whatever is mounted below the
// pod's directory is unmounted, and the directory removed.
type plugin struct {
	// field is the type's field of v1.VolumeSource, as manifests write it.
	field string
	// setUp makes a volume of the pod whose directory is podDir. What is there already stays as it
	// is.
	setUp func(v *Volumes, pod *v1.Pod, podDir string, volume v1.Volume) error
	// path is where the volume is on the node once it is set up.
	path func(podDir string, volume v1.Volume) string
	// relabel: the files are the pod's, so they get its SELinux label.
	relabel bool
}

func plugins() []plugin { return []plugin{emptyDirs(), hostPaths()} }

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
	last := len(known) - 1
	return plugin{}, fmt.Errorf("volume %q: a volume of type %s is not supported; use %s or %s",
		volume.Name, kind, strings.Join(known[:last], ", "), known[last])
}

// pluginsFor has a plugin for each volume, or an error that names all that have none.
func pluginsFor(volumes []v1.Volume) ([]plugin, error) {
	var out []plugin
	var errs []error
	for _, volume := range volumes {
		p, err := pluginFor(volume)
		out, errs = append(out, p), append(errs, err)
	}
	return out, errors.Join(errs...)
}

// sourceKind is the field name of a volume's source, "" when it has none.
func sourceKind(source v1.VolumeSource) string {
	text, err := json.Marshal(source)
	if err != nil {
		return "unknown"
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return "unknown"
	}
	return strings.Join(slices.Sorted(maps.Keys(fields)), "+")
}
