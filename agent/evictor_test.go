package agent

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/eviction"
	"github.com/numalet/numalet/internal/podtest"
)

// TestEvictor: a pod is evicted once, whoever asks, and as long as it is ending it is no pod that
// may be evicted. The end of one that exceeded a limit of its own is waited for, not for ever.
func TestEvictor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := []*v1.Pod{podtest.New("a"), podtest.New("b")}
		held, begun := true, ""
		e := &evictor{active: func() []*v1.Pod { return append([]*v1.Pod(nil), pods...) },
			holds: func(types.UID) bool { return held }, begun: map[types.UID]time.Time{},
			begin: func(e eviction.Eviction) { begun += e.Pod.Name + " for " + e.Message + "," }}
		words := func(message string) eviction.Words { return eviction.Words{Message: message} }
		expect := func(what string, left int, freeing bool) {
			t.Helper()
			if got := e.pods(); len(got) != left || e.freeing() != freeing {
				t.Errorf("%s: %d pods are left, freeing is %t; want %d, %t", what, len(got), e.freeing(),
					left, freeing)
			}
		}
		e.evict(eviction.Eviction{Pod: pods[1], Words: words("memory")})
		expect("evicted because the node runs short", 1, false)
		e.evict(eviction.Eviction{Pod: pods[0], Words: words("its limit"), Grace: time.Second,
			OwnLimit: true})
		e.evict(eviction.Eviction{Pod: pods[0], Words: words("memory")})
		expect("evicted for its limit", 0, true)
		time.Sleep(32 * time.Second)
		expect("does not end", 0, false)
		if begun != "b for memory,a for its limit," {
			t.Errorf("it began %s", begun)
		}
		pods = nil
		if expect("gone", 0, false); len(e.begun) != 0 {
			t.Errorf("of pods that are gone it knows %v", e.begun)
		}
		pods = []*v1.Pod{podtest.New("c")}
		e.evict(eviction.Eviction{Pod: pods[0], OwnLimit: true})
		held = false
		expect("ended", 0, false)
	})
}
