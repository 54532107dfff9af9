package eviction

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/internal/podtest"
)

// TestOnce: a pod is evicted once, whoever asks, and as long as it is ending it is no pod that may be
// evicted.
func TestOnce(t *testing.T) {
	pods := []*v1.Pod{podtest.New("a"), podtest.New("b")}
	begun := ""
	e := NewOnce(func() []*v1.Pod { return slices.Clone(pods) },
		func(e Eviction) { begun += e.Pod.Name + " for " + e.Message + "," })
	evict := func(pod *v1.Pod, message string) {
		e.Evict(Eviction{Pod: pod, Words: Words{Message: message}})
	}
	expect := func(what string, left int) {
		t.Helper()
		if got := e.Pods(); len(got) != left {
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
