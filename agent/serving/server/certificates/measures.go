package certificates

import (
	"crypto/tls"
	"math"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/internal/metric"
)

// Durations longer than an hour.
const (
	day   = 24 * time.Hour
	month = 30 * day
)

// measures holds the metrics of a certificate that is renewed.
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
	m.Read("kubelet_certificate_manager_server_ttl_seconds", "How long the serving certificate is "+
		"still valid, in seconds: less than 0 when it has ended, +Inf when there is none.", nil, m.left)
	return m
}

// left reports the remaining validity of the serving certificate, in seconds.
func (m *measures) left(tell metric.Tell) {
	cert := m.certificate()
	if cert == nil || cert.Leaf == nil {
		tell(math.Inf(1))
		return
	}
	tell(math.Trunc(time.Until(cert.Leaf.NotAfter).Seconds()))
}
