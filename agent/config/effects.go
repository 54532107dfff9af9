package config

import (
	"maps"
	"slices"
	"strings"
)

// effects returns the table of settings with an effect (effects.yaml): notes by path, gate or flag.
func effects() map[string]string {
	table := table[map[string]string](effectsYAML)
	for _, name := range append(new(DevicePlugins).names(), new(Placement).names()...) {
		table["--"+name] = ""
	}
	return table
}

// unhonoured lists the settings without effect, by path for those in files, and the flags.
func unhonoured(c *Config, given []string, flags *Flags) []string {
	table := effects()
	without := map[string]bool{}
	report := func(name, path string) {
		note, ok := lookup(table, path)
		switch {
		case ok && note != "":
			without[name+" ("+note+")"] = true
		case !ok:
			without[name] = true
		}
	}
	for _, path := range given {
		if path != "featureGates" {
			report(path, path)
		}
	}
	for name := range c.Kubelet.FeatureGates {
		report("featureGates."+name, "featureGates."+name)
	}
	paths := map[string]string{}
	for _, row := range fieldFlags() {
		paths[row.Flag] = row.Path
	}
	for name := range flags.fields.raw {
		switch path, ok := paths[name]; {
		case name == "feature-gates": // reported one by one
		case ok:
			report("--"+name, path)
		default:
			report("--"+name, "logging")
		}
	}
	for _, name := range flags.options() {
		report("--"+name, "--"+name)
	}
	return slices.Sorted(maps.Keys(without))
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
