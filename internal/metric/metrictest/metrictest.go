// Package metrictest reads gauges and counters in tests.
package metrictest

import (
	"strings"
	"testing"

	"k8s.io/component-base/metrics"
)

// Values returns a gauge's or a counter's values by label values, which are joined by commas in the
// order of the label names.
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
