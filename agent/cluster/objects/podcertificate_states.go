package objects

import (
	"strings"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/internal/metric"
)

// certificateState is one certificate in the metrics.
type certificateState struct {
	signer  string
	refused string // "denied" or "failed"; "": neither
	// renew and expires are zero until a certificate is issued.
	renew, expires time.Time
}

func (s certificateState) at(now time.Time) string {
	switch {
	case s.refused != "":
		return s.refused
	case s.expires.IsZero():
		return "not_yet_issued"
	case now.After(s.expires):
		return "expired"
	case now.After(s.renew.Add(certificateOverdue)):
		return "overdue_for_refresh"
	default:
		return "fresh"
	}
}

// Register registers the metrics of the objects.
func (o *Objects) Register(r metrics.KubeRegistry) error {
	var s metric.Set
	s.Read("kubelet_podcertificate_states", "Certificates that volumes of pods are made with, by "+
		"their signer and state: not_yet_issued, fresh, overdue_for_refresh, expired, denied, failed.",
		[]string{"signer_name", "state"}, o.certificates.states)
	return s.Register(r)
}

// show updates what the metrics show of a certificate.
func (c *podCertificates) show(held *podCertificate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	held.shown.refused = strings.ToLower(held.refusal)
	held.shown.renew, held.shown.expires = held.renew, held.expires
}

// states reports the number of certificates by signer and state.
func (c *podCertificates) states(tell metric.Tell) {
	type kind struct{ signer, state string }
	count, now := map[kind]int{}, time.Now()
	c.mu.Lock()
	for _, all := range c.pods {
		for _, held := range all {
			count[kind{held.shown.signer, held.shown.at(now)}]++
		}
	}
	c.mu.Unlock()
	for k, n := range count {
		tell(float64(n), k.signer, k.state)
	}
}
