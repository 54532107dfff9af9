package preflight

import (
	"strings"
	"testing"
)

// TestVersions: a node may be older than its API server by three minor versions, and never newer.
func TestVersions(t *testing.T) {
	for told, want := range map[string]Level{
		"v1.36.9": Changes, "v1.37.0": Same, "v1.40.1-eks": Same, "v1.41.0": Changes, "v2.0.0": Changes, "x": Note,
	} {
		var l looking
		l.besideServer(told)
		if got := l.Findings[0]; got.Level != want {
			t.Errorf("API server %s: %+v, want %s", told, got, want)
		}
	}
	for told, want := range map[string]Level{"v1.37.2": Same, "v1.35.0": Note, "Kubernetes": Note} {
		var l looking
		l.besideKubelet(told)
		if got := l.Findings[0]; got.Level != want {
			t.Errorf("kubelet %s: %+v, want %s", told, got, want)
		}
	}
}

// TestText: what is the same is in one line, all else has one of its own, and the gravest finding decides.
func TestText(t *testing.T) {
	r := Report{CommandLine: []string{"--config=/c.yaml"}, From: "the kubelet that runs"}
	r.add(Configuration, "maxPods", Same, "")
	r.add(Configuration, "port", Same, "")
	r.add(Configuration, "hairpinMode", WithoutEffect, "the network plugin sets hairpins")
	for level, verdict := range map[Level]string{Note: "Ready: ", Changes: "would change", Blocks: "Not ready: "} {
		one := r
		one.add(Pods, "shop/web", level, "x").Advice = "do y"
		text := one.Text()
		for _, want := range []string{"--config=/c.yaml", "the same: maxPods, port\n", "hairpinMode", "x; do y", verdict} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", level, want, text)
			}
		}
	}
}
