package metrics

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
)

// The steps in which a node joins the cluster are measured once; later changes are no start.
func TestStartup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		booted := time.Now().Add(-64 * time.Second)
		m, _ := fresh(t)
		s := m.Startup
		s.Booted(booted)
		time.Sleep(2 * time.Second)
		s.Registering()
		time.Sleep(4 * time.Second)
		s.Registering() // a second attempt
		s.NodeWritten(false)
		time.Sleep(8 * time.Second)
		for _, ready := range []bool{true, false, true} {
			s.NodeWritten(ready)
			time.Sleep(16 * time.Second)
		}
		for i, gauge := range []*metrics.Gauge{s.before, s.start, s.registration, s.after, s.all} {
			value, err := testutil.GetGaugeMetricValue(gauge)
			if want := []float64{64, 2, 4, 8, 78}[i]; err != nil || value != want {
				t.Errorf("step %d took %v s (%v), want %v", i, value, err, want)
			}
		}
	})
}
