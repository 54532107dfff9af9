package topology_test

import (
	"strings"
	"testing"

	"github.com/numalet/numalet/topology"
)

func TestParsePolicy(t *testing.T) {
	for in, want := range map[string]topology.Policy{
		"":                 topology.None,
		"none":             topology.None,
		"best-effort":      topology.BestEffort,
		"restricted":       topology.Restricted,
		"single-numa-node": topology.SingleNUMANode,
	} {
		if got, err := topology.ParsePolicy(in); err != nil || got != want {
			t.Errorf("ParsePolicy(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	_, err := topology.ParsePolicy("Restricted")
	if err == nil || !strings.Contains(err.Error(), `"Restricted": use one of none, best-effort`) {
		t.Errorf("unknown policy: error %v does not say what to use", err)
	}
}

func TestParseScope(t *testing.T) {
	for in, want := range map[string]topology.Scope{
		"":          topology.ContainerScope,
		"container": topology.ContainerScope,
		"pod":       topology.PodScope,
	} {
		if got, err := topology.ParseScope(in); err != nil || got != want {
			t.Errorf("ParseScope(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	if _, err := topology.ParseScope("node"); err == nil {
		t.Error("ParseScope accepts an unknown scope")
	}
}
