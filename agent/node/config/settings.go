package config

import (
	_ "embed"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Effect says how a setting works here, compared with the kubelet of KubeletVersion.
type Effect string

// The effects of settings.
const (
	Same          Effect = "same"
	Better        Effect = "better"
	Partial       Effect = "partial"
	WithoutEffect Effect = "without effect"
)

// Setting is a path of the configuration, a feature gate or a flag, and what becomes of it.
type Setting struct {
	Name   string
	Effect Effect
	Note   string // what is better, which part works, or why there is no effect
}

//go:embed better.yaml
var betterYAML []byte

// better returns what works better than in a kubelet, by path or flag.
var better = sync.OnceValue(func() map[string]string { return table[map[string]string](betterYAML) })

// Settings lists, sorted by name, what the files and the command line set.
func (c *Config) Settings() []Setting { return slices.Clone(c.given.settings) }

// Remarkable lists, sorted by name, every setting that works otherwise than in a kubelet, whether it is
// set or not. Of a setting with a note of its own, such as a gate that it needs, the kubelet's is the same.
func Remarkable() []Setting {
	found := map[string]Setting{}
	for name, note := range effects() {
		if why, without := strings.CutPrefix(note, none); without {
			found[name] = Setting{name, WithoutEffect, why}
		}
	}
	for name, note := range better() {
		found[name] = Setting{name, Better, note}
	}
	return sorted(found)
}

// settings describes what was given: the paths of files, gates and flags. without has what Unhonoured returns.
func settings(c *Config, paths []string, flags *Flags, without []string) []Setting {
	unheeded := map[string]Setting{}
	for _, text := range without {
		name, note, _ := strings.Cut(strings.TrimSuffix(text, ")"), " (")
		unheeded[name] = Setting{name, WithoutEffect, note}
	}
	found := map[string]Setting{}
	add := func(name, path string) {
		one := Setting{name, Same, ""}
		if note, is := better()[path]; is {
			one = Setting{name, Better, note}
		}
		if lacks, is := unheeded[name]; is {
			one = lacks
			note, listed := lookup(effects(), path)
			if listed && !strings.HasPrefix(note, none) && note != alwaysOn {
				one.Effect = Partial
			}
		}
		found[name] = one
	}
	for _, path := range paths {
		if path != "featureGates" {
			add(path, path)
		}
	}
	for gate := range c.Kubelet.FeatureGates {
		add("featureGates."+gate, "featureGates."+gate)
	}
	for name := range unheeded { // such as a threshold of a signal, which is part of a path that is given
		if _, known := found[name]; !known && !strings.HasPrefix(name, "--") {
			found[name] = unheeded[name]
		}
	}
	fields := map[string]string{}
	for _, row := range fieldFlags() {
		fields[row.Flag] = row.Path
	}
	for _, name := range flags.given() {
		path, is := fields[name]
		if !is {
			path = "--" + name
		}
		if name != "feature-gates" {
			add("--"+name, path)
		}
	}
	return sorted(found)
}

func sorted(by map[string]Setting) (out []Setting) {
	for _, name := range slices.Sorted(maps.Keys(by)) {
		out = append(out, by[name])
	}
	return out
}
