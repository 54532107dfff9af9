package eviction

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// TestExplain: what a user is told, before, while and after something is short.
func TestExplain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, kubeletv1beta1.KubeletConfiguration{
			EvictionHard:            map[string]string{"memory.available": "100Mi", "nodefs.available": "10%"},
			EvictionSoft:            map[string]string{"memory.available": "150Mi"},
			EvictionSoftGracePeriod: map[string]string{"memory.available": "30s"},
			EvictionMinimumReclaim:  map[string]string{"memory.available": "50Mi"},
		})
		says := func(want string) {
			t.Helper()
			e := w.Explain(t.Context(), "n1")
			if got := e.Text(); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			text, err := json.Marshal(e)
			var back Explanation
			if err == nil {
				err = json.Unmarshal(text, &back)
			}
			if err != nil || back.Text() != e.Text() {
				t.Errorf("as JSON it says\n%s: %v", back.Text(), err)
			}
		}
		says("Node n1 has not been looked at yet, or has no eviction thresholds\n")
		w.runs("critical 50 2000000000, a 300 0 memory=400Mi.., b 200")
		w.look(t.Context())
		says(`Node n1 is short of nothing

SIGNAL                 AVAILABLE  THRESHOLD  STATE
memory.available       450Mi      100Mi
memory.available       450Mi      150Mi      soft: acts when met for 30s
nodefs.available       450Mi      100Mi
containerfs.available  ?          ?          could not be read

Next if memory.available, the nearest, runs short
  1. ns/b: uses 200Mi, requests 0: more than it requests; priority 0
  2. ns/a: uses 300Mi, requests 400Mi; priority 0
  never: 1 critical
`)
		w.lasts["b"] = time.Minute
		w.set("b", 600)
		w.look(t.Context())
		time.Sleep(5 * time.Second)
		w.look(t.Context())
		says(`Node n1 is short: memory.available, nodefs.available
MemoryPressure holds
DiskPressure holds

SIGNAL                 AVAILABLE  THRESHOLD  STATE
memory.available       50Mi       100Mi      met for 5s, until 150Mi is available
memory.available       50Mi       150Mi      met for 5s, until 200Mi is available; soft: acts when met for 30s
nodefs.available       50Mi       100Mi      met for 5s
containerfs.available  ?          ?          could not be read

What was done
  5s ago for memory.available: evicted ns/b, which uses 600Mi, requests 0: more than it requests; priority 0

The end of ns/b is awaited before another pod is chosen

Next while memory.available is short
  1. ns/a: uses 300Mi, requests 400Mi; priority 0
  never: 1 critical
`)
		inShort := func(want ...string) {
			t.Helper()
			if got := w.Pressure(); !slices.Equal(got, want) {
				t.Errorf("in short: %q, want %q", got, want)
			}
		}
		inShort("MemoryPressure: memory.available is below 150Mi, memory.available is below 200Mi",
			"DiskPressure: nodefs.available is below 100Mi")
		time.Sleep(30 * time.Second)
		w.set("b", 0)
		w.look(t.Context())
		inShort("MemoryPressure: nothing is short any longer", "DiskPressure: nothing is short any longer")
		time.Sleep(time.Minute)
		w.look(t.Context())
		inShort()
		w.unmeasure = true
		e := w.Explain(t.Context(), "n1")
		if e.Awaits != "" || len(e.Done) != 1 || e.Unknown != errors.New("not now").Error() {
			t.Errorf("afterwards it says\n%s", e.Text())
		}
	})
}

// TestExplainFreeing: while what an evicted pod used comes back, that is told.
func TestExplainFreeing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, kubeletv1beta1.KubeletConfiguration{
			EvictionHard: map[string]string{"nodefs.available": "10%"}})
		w.late = 9 * time.Second
		w.runs("hog 950")
		w.look(t.Context())
		says := func(after time.Duration, awaits, freeing string) {
			t.Helper()
			time.Sleep(after)
			w.look(t.Context())
			e := w.Explain(t.Context(), "n1")
			reported := strings.Contains(e.Text(), "What ns/hog used is not all free yet\n")
			if e.Awaits != awaits || e.Freeing != freeing || reported != (freeing != "") {
				t.Errorf("it awaits %q and %q, and says\n%s", e.Awaits, e.Freeing, e.Text())
			}
		}
		says(0, "ns/hog", "")
		says(2*time.Second, "", "ns/hog")
		says(10*time.Second, "", "")
	})
}
