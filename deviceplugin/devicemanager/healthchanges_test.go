package devicemanager

import (
	"fmt"
	"testing"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/numalet/numalet/cmd/numalet-lab/sim"
	"github.com/numalet/numalet/topology"
)

// Each step is a list, or "-" for an absent plugin, and the numbers of devices that turned healthy
// and unhealthy.
func TestHealthChanges(t *testing.T) {
	for name, steps := range map[string][][2]string{
		"first lists are no change": {{"a b! c", "0 0"}, {"a b! c", "0 0"}},
		"one way and the other": {{"a b c", "0 0"}, {"a! b c!", "0 2"}, {"a b! c!", "1 1"},
			{"a b c", "2 0"}},
		"devices come and go": {{"b d f", "0 0"}, {"a! b d! e! g!", "0 1"},
			{"b! d", "1 1"}, {"z!", "0 0"}},
		"a plugin that is away is quiet": {{"a b", "0 0"}, {"-", "0 0"}, {"a b!", "0 1"},
			{"-", "0 0"}, {"a b", "1 0"}},
		"an empty list forgets": {{"a b", "0 0"}, {"", "0 0"}, {"a! b", "0 0"}},
		"another order":         {{"a b c", "0 0"}, {"c! b a", "0 1"}, {"b c a", "1 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			said, l := healthSaid{}, newLister(topology.NewNodeSet(0))
			for i, s := range steps {
				r := Resource{Connected: s[0] != "-"}
				if r.Connected {
					now, _, err := l.read(message(t, s[0]))
					if err != nil {
						t.Fatal(err)
					}
					r.Devices, r.Generation = now.devices, uint64(i+1)
				}
				got := "0 0"
				said.follow(Inventory{Resources: map[string]Resource{gpu: r}},
					func(_ string, changed []*Device) {
						well := healthy(changed)
						got = fmt.Sprint(well, len(changed)-well)
					})
				if got != s[1] {
					t.Errorf("step %d (%s): %s, want %s", i, s[0], got, s[1])
				}
			}
			said.follow(Inventory{Gone: []string{gpu}}, nil)
			if len(said) > 0 {
				t.Error("a resource that is gone is remembered")
			}
		})
	}
}

func TestHealthChangesAreCounted(t *testing.T) {
	r := newRig(t, Config{Registry: metrics.NewKubeRegistry()})
	plugin := r.plugin(sim.Config{Resource: gpu})
	r.untilConnected(gpu)
	counted := func() string {
		healthy, err := testutil.GetCounterMetricValue(
			r.metrics.healthChanges.WithLabelValues(gpu, "healthy"))
		if err != nil {
			t.Fatal(err)
		}
		unhealthy, err := testutil.GetCounterMetricValue(
			r.metrics.healthChanges.WithLabelValues(gpu, "unhealthy"))
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(healthy, unhealthy)
	}
	plugin.must(plugin.SetHealth(t.Context(), false, "gpu-3", "gpu-4"))
	eventually(t, "two to be counted", func() bool { return counted() == "0 2" })
	plugin.must(plugin.SetHealth(t.Context(), true, "gpu-3"))
	eventually(t, "the third to be counted", func() bool { return counted() == "1 2" })
	plugin.must(plugin.Restart(t.Context()))
	plugin.must(plugin.SetHealth(t.Context(), true, "gpu-4"))
	eventually(t, "the fourth to be counted", func() bool { return counted() == "2 2" })
}
