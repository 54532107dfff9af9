package config

import (
	"strings"
	"testing"
)

// TestSettings: each setting that is given has its effect, under the name by which it was given.
func TestSettings(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"k.yaml": head + "maxPods: 20\ncpuManagerPolicy: none\nqosReserved: {memory: 50%}\n" +
		"hairpinMode: none\nfeatureGates: {NodeSwap: true, PodLevelResources: true}\n"})
	c := mustLoad(t, dir, "--config=%dir%/k.yaml", "--topology-manager-policy=restricted", "--numa-allocation=packed")
	got := map[string]Setting{}
	for _, s := range c.Settings() {
		got[s.Name] = s
	}
	for name, want := range map[string]Effect{
		"maxPods": Same, "cpuManagerPolicy": Better, "qosReserved": Partial, "hairpinMode": WithoutEffect,
		"featureGates.NodeSwap": Same, "--topology-manager-policy": Better, "--numa-allocation": Same, "--config": Same,
	} {
		if got[name].Effect != want || (want != Same) != (got[name].Note != "") {
			t.Errorf("%s: %+v, want %s", name, got[name], want)
		}
	}
	if strings.HasPrefix(got["hairpinMode"].Note, none) {
		t.Errorf("the note is the table's: %q", got["hairpinMode"].Note)
	}
}

// TestBetterSettings: what is better works at all.
func TestBetterSettings(t *testing.T) {
	table := effects()
	for name := range better() {
		note, listed := lookup(table, name)
		if !listed || strings.HasPrefix(note, none) {
			t.Errorf("%s is better than in a kubelet, and has no effect", name)
		}
	}
	for _, s := range Remarkable() {
		if s.Note == "" || s.Effect == Same {
			t.Errorf("%+v is not worth a remark", s)
		}
	}
}
