package agent

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/node/eviction"
	"github.com/numalet/numalet/internal/podtest"
)

// TestEvictor: a pod is evicted once, whoever asks, and as long as it is ending it is no pod that may be
// evicted.
func TestEvictor(t *testing.T) {
	pods := []*v1.Pod{podtest.New("a"), podtest.New("b")}
	begun := ""
	e := &evictor{active: func() []*v1.Pod { return slices.Clone(pods) }, begun: sets.Set[types.UID]{},
		begin: func(e eviction.Eviction) { begun += e.Pod.Name + " for " + e.Message + "," }}
	evict := func(pod *v1.Pod, message string) {
		e.evict(eviction.Eviction{Pod: pod, Words: eviction.Words{Message: message}})
	}
	expect := func(what string, left int) {
		t.Helper()
		if got := e.pods(); len(got) != left {
			t.Errorf("%s: %d pods are left, want %d", what, len(got), left)
		}
	}
	evict(pods[1], "memory")
	expect("one is evicted", 1)
	evict(pods[0], "its limit")
	evict(pods[0], "memory")
	expect("both are", 0)
	if begun != "b for memory,a for its limit," {
		t.Errorf("it began %s", begun)
	}
	pods = nil
	if expect("gone", 0); len(e.begun) != 0 {
		t.Errorf("of pods that are gone it knows %v", e.begun)
	}
}

// Only where pods are limited to what they may request, and that is less than they may use, has the limit
// of all pods a threshold. That of the machine's memory stays.
func TestThresholdsOf(t *testing.T) {
	for name, tc := range map[string]struct {
		args   []string
		limits bool
	}{
		"usually":            {nil, true},
		"pods have no limit": {[]string{"--enforce-node-allocatable=none"}, false},
		"ignored":            {[]string{"--experimental-allocatable-ignore-eviction"}, false},
	} {
		cfg, err := config.FromArgs(append([]string{"--root-dir=" + t.TempDir()}, tc.args...))
		if err != nil {
			t.Fatal(err)
		}
		all, err := thresholdsOf(cfg)
		has := func(signal eviction.Signal) bool {
			return slices.ContainsFunc(all, func(one eviction.Threshold) bool { return one.Signal == signal })
		}
		if err != nil || !has(eviction.MemoryAvailable) || has(eviction.AllocatableMemoryAvailable) != tc.limits {
			t.Errorf("%s: %v, %v", name, all, err)
		}
		if want := len(cfg.Kubelet.EnforceNodeAllocatable); want == 0 {
			t.Errorf("%s: the settings have changed", name)
		}
	}
}
