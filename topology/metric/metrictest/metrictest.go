// Package metrictest reads gauges and counters in tests.
package metrictest

import (
	"strings"
	"testing"

	"k8s.io/component-base/metrics"
)

// Values are those of a gauge or a counter, by its labels' values in the order of the labels' names,
// joined by commas.
func Values(t testing.TB, from metrics.Gatherer, name string) map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			out[strings.Join(labels, ",")] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}
