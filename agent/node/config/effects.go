package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/component-base/featuregate"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// effects returns the table of settings with an effect (effects.yaml): notes by path, gate or flag.
func effects() map[string]string {
	table := table[map[string]string](effectsYAML)
	for _, name := range namesOf(new(Flags).addGroups) {
		table["--"+name] = ""
	}
	return table
}

// Notes of the table that depend on the configuration.
const (
	// alwaysOn is the note of a gate whose feature cannot be switched off.
	alwaysOn = "always on"
	// elsewhere begins the note of a gate that has no effect in any kubelet.
	elsewhere = "elsewhere"
	// none begins the note of a setting without effect; the rest is the reason.
	none = "none, "
	// needsGate begins the note of a setting that a gate switches.
	needsGate = "needs feature gate "
)

// unhonoured lists the settings without effect, by path for those in files, and the flags. A
// setting with the value that it has anyway is none of them: kubeadm writes many.
func unhonoured(c *Config, given []string, flags *Flags) []string {
	u := unheeded{c: c, table: effects(), usual: new(kubeletv1beta1.KubeletConfiguration),
		found: map[string]bool{}}
	applyDefaults(u.usual)
	for _, path := range given {
		if path != "featureGates" {
			u.field(path, path)
		}
	}
	for name, on := range c.Kubelet.FeatureGates {
		u.gate("featureGates."+name, on)
	}
	u.derived()
	paths := map[string]string{}
	for _, row := range fieldFlags() {
		paths[row.Flag] = row.Path
	}
	for name := range flags.fields.raw {
		switch path, ok := paths[name]; {
		case name == "feature-gates": // reported one by one
		case ok:
			u.field("--"+name, path)
		default:
			u.report("--"+name, "logging")
		}
	}
	for _, name := range flags.options() {
		u.report("--"+name, "--"+name)
	}
	return slices.Sorted(maps.Keys(u.found))
}

// unheeded collects settings without effect.
type unheeded struct {
	c     *Config
	table map[string]string
	usual *kubeletv1beta1.KubeletConfiguration // the defaults
	found map[string]bool
}

// field reports a field under the name by which it was set, unless its value is the usual one.
func (u unheeded) field(name, path string) {
	if !equality.Semantic.DeepEqual(valueAt(&u.c.Kubelet, path), valueAt(u.usual, path)) {
		u.report(name, path)
	}
}

// valueAt returns the value at a path of JSON names; nil if a part above it is not set.
func valueAt(c *kubeletv1beta1.KubeletConfiguration, path string) any {
	root := reflect.ValueOf(c).Elem()
	for i, r := range path {
		if r != '.' {
			continue
		}
		if above := fieldAt(root, path[:i]); above.Kind() == reflect.Pointer && above.IsNil() {
			return nil
		}
	}
	return fieldAt(root, path).Interface()
}

// gate reports a gate that is set to something else than what the agent does.
func (u unheeded) gate(path string, on bool) {
	switch note, listed := u.table[path]; {
	case note == alwaysOn && on, !listed && !on, strings.HasPrefix(note, elsewhere):
	default:
		u.note(path, note, listed && note != alwaysOn)
	}
}

// derived reports thresholds of signals that have those of others.
func (u unheeded) derived() {
	k := &u.c.Kubelet
	for field, values := range map[string]map[string]string{
		"evictionHard": k.EvictionHard, "evictionSoft": k.EvictionSoft,
	} {
		for signal := range values {
			if IsDerived(signal) {
				u.note(keyed(field, signal), "follows nodefs or imagefs", false)
			}
		}
	}
}

func (u unheeded) report(name, path string) {
	note, ok := lookup(u.table, path)
	u.note(name, note, ok)
}

func (u unheeded) note(name, note string, ok bool) {
	gate, needs := strings.CutPrefix(note, needsGate)
	switch {
	case ok && (note == "" || needs && u.c.Gates.Enabled(featuregate.Feature(gate))):
	case note != "":
		u.found[name+" ("+strings.TrimPrefix(note, none)+")"] = true
	default:
		u.found[name] = true
	}
}

// lookup finds the entry of path, or of its nearest parent.
func lookup(table map[string]string, path string) (note string, ok bool) {
	for {
		if note, ok = table[path]; ok {
			return note, true
		}
		cut := strings.LastIndexByte(path, '.')
		if cut < 0 {
			return "", false
		}
		path = path[:cut]
	}
}
