package claims

import (
	"maps"
	"testing"
	"testing/synctest"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/internal/metric/metrictest"
)

// Drivers that want no calls get none and are counted; without the feature gate such a claim is
// refused. Prepared claims are counted by driver.
func TestOptionalCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := n.pod("p", "a", "b")
		n.claim("a", []string{gpus, nics}, pod)
		n.claim("b", []string{nics}, pod)
		for i, d := range n.claims["a"].Status.Allocation.Devices.Results {
			if d.Driver == gpus {
				n.claims["a"].Status.Allocation.Devices.Results[i].SkipNodeOperations =
					[]resourcev1.SkipNodeOperation{resourcev1.SkipNodeOperationAll}
			}
		}
		n.usable.Delete(gpus) // nobody needs it
		want := "ResourceClaim a: " + claim.ErrSkips.Error()
		if err := n.Prepare(t.Context(), pod); err == nil || err.Error() != want {
			t.Errorf("without the gate: %v", err)
		}
		n.follow.optional = true
		var err error
		registry := metrics.NewKubeRegistry()
		if n.metrics, err = newMeters(registry, n.book.records); err != nil {
			t.Fatal(err)
		}
		if err := n.Prepare(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		n.expect(t, "prepare nic a,b")
		n.expectStages(t, "a[p] gpu=Prepared nic=Prepared; b[p] nic=Prepared")
		expectMetric(t, registry, "dra_resource_claims_in_use",
			map[string]float64{"<any>": 2, gpus: 1, nics: 2})
		expectMetric(t, registry, "dra_node_prepare_skips_total", map[string]float64{gpus: 1})
		if err := n.Unprepare(t.Context(), pod.UID); err != nil {
			t.Error(err)
		}
		n.expect(t, "unprepare nic a,b", "settled uid-p")
		expectMetric(t, registry, "dra_resource_claims_in_use", map[string]float64{"<any>": 0})
		expectMetric(t, registry, "dra_node_unprepare_skips_total", map[string]float64{gpus: 1})
	})
}

// expectMetric compares a metric's values by labels.
func expectMetric(t *testing.T, registry metrics.KubeRegistry, name string,
	want map[string]float64) {
	t.Helper()
	if got := metrictest.Values(t, registry, name); !maps.Equal(got, want) {
		t.Errorf("%s is %v, want %v", name, got, want)
	}
}
