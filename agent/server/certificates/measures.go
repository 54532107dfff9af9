package certificates

import (
	"crypto/tls"
	"math"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/topology/metric"
)

// Durations of more than a day.
const (
	day   = 24 * time.Hour
	month = 30 * day
)

// measures are the metrics of a certificate that is signed again and again.
type measures struct {
	metric.Set
	rotated     *metrics.Histogram
	failed      *metrics.Counter
	certificate func() *tls.Certificate
}

func newMeasures() *measures {
	m := &measures{certificate: func() *tls.Certificate { return nil }}
	var lived []float64
	for _, d := range []time.Duration{
		time.Minute, time.Hour, 4 * time.Hour, day, 7 * day, month, 3 * month, 6 * month,
		12 * month, 48 * month,
	} {
		lived = append(lived, d.Seconds())
	}
	m.rotated = m.Histogram("kubelet_certificate_manager_server_rotation_seconds",
		"How long serving certificates lived, in seconds, before the next one was there.", lived)
	m.failed = m.Counter("kubelet_server_expiration_renew_errors",
		"Serving certificates that could not be renewed.")
	return m
}

func (m *measures) register(r metrics.KubeRegistry) error {
	if err := m.Register(r); err != nil || r == nil {
		return err
	}
	r.RawMustRegister(metrics.NewGaugeFunc(&metrics.GaugeOpts{
		Name: "kubelet_certificate_manager_server_ttl_seconds",
		Help: "How long the serving certificate is still valid, in seconds: less than 0 when it " +
			"has ended, +Inf when there is none.",
		StabilityLevel: metrics.ALPHA,
	}, func() float64 {
		cert := m.certificate()
		if cert == nil || cert.Leaf == nil {
			return math.Inf(1)
		}
		return math.Trunc(time.Until(cert.Leaf.NotAfter).Seconds())
	}))
	return nil
}
