package rig

import (
	"strings"
	"testing"

	"github.com/numalet/numalet/topology/topologytest"
)

// Under every policy only pods that ask for isolated CPUs get them, and pods that ask for whole
// cores hold the CPUs that complete their cores. The rig checks each plan.
func TestIsolatedMix(t *testing.T) {
	m := topologytest.Fixture(t, "playground")
	s, err := NewSite(SiteConfig{Machine: m, IsolatedCPUs: "2-5,34-37,16-19,48-51"})
	if err != nil || s.IsolatedCPUs.Size() != 16 {
		t.Fatalf("isolated are %s, %v", s.IsolatedCPUs, err)
	}
	stream := drawn(t, s, "isolated", Draw{Pods: 400, Seed: 1})
	for _, p := range policies(t, "none/single-numa-node,cpu-none") {
		outcome, err := Run(t.Context(), s, p, stream, Options{})
		if err != nil {
			t.Fatalf("%s: %v", p.Name, err)
		}
		for _, shape := range outcome.Shapes {
			if shape.Admitted == 0 {
				t.Errorf("%s: no pod of %s was admitted", p.Name, shape.Name)
			}
		}
	}
	var b strings.Builder
	if err := WriteTrace(&b, stream); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), `"annotations":{"numalet.io/isolated-cpus":"true"}`) {
		t.Errorf("the trace does not say who asks:\n%.500s", b.String())
	}
	for list, want := range map[string]string{
		"x": "isolated CPUs", "400": "online are", "0-63": "0 online that are not isolated",
	} {
		_, err := NewSite(SiteConfig{Machine: m, IsolatedCPUs: list})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("isolated %s: %v, want %s", list, err, want)
		}
	}
	for _, annotations := range []string{"{example.com/x: y}", "{numalet.io/whole-cores: maybe}"} {
		mix, err := ParseMix([]byte("templates:\n- name: a\n  lifetime: 1h\n  annotations: " +
			annotations + "\n  containers: [{limits: {cpu: 1}}]\n"))
		if err == nil {
			_, err = s.Generate(mix, Draw{Pods: 1})
		}
		if err == nil || !strings.Contains(err.Error(), "annotation") {
			t.Errorf("%s: %v", annotations, err)
		}
	}
}
