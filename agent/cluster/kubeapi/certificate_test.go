package kubeapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/numalet/numalet/internal/metric"
)

// fakeManager has the certificate and the health that a test says.
type fakeManager struct {
	current *tls.Certificate
	healthy bool
	stopped int
}

func (m *fakeManager) Start()                    {}
func (m *fakeManager) Stop()                     { m.stopped++ }
func (m *fakeManager) Current() *tls.Certificate { return m.current }
func (m *fakeManager) ServerHealthy() bool       { return m.healthy }

// TestWithoutCertificate: the agent ends after five minutes in which there was no certificate, and
// not while the API server does not answer.
func TestWithoutCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &fakeManager{}
		done := make(chan error, 1)
		r := rotation{manager: m, changed: func() {}, left: new(metric.Set).Gauge("left", "left")}
		go func() { done <- r.run(t.Context()) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(done) > 0 {
			t.Fatal("the agent ended although the API server does not answer")
		}
		m.current = &tls.Certificate{Leaf: &x509.Certificate{}}
		time.Sleep(time.Minute)
		m.current, m.healthy = nil, true
		began := time.Now()
		err := <-done
		if err == nil || !strings.Contains(err.Error(), "kubectl get csr") {
			t.Errorf("ended with %v", err)
		}
		if after := time.Since(began); after < withoutCertificate ||
			after > withoutCertificate+2*laterLook {
			t.Errorf("ended after %s", after)
		}
	})
}

// TestChangedCertificate is told of once, within 10 s, or a second if it is the first.
func TestChangedCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, reported := &fakeManager{}, 0
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := rotation{manager: m, changed: func() { reported++ }, left: new(metric.Set).Gauge("left", "left")}
		go func() { _ = r.run(ctx) }()
		m.current = &tls.Certificate{Leaf: &x509.Certificate{}}
		time.Sleep(firstLook + time.Millisecond)
		if reported != 1 {
			t.Errorf("the first certificate was told of %d times", reported)
		}
		m.current = &tls.Certificate{Leaf: &x509.Certificate{}}
		time.Sleep(3 * laterLook)
		if reported != 2 {
			t.Errorf("two certificates were told of %d times", reported)
		}
		if m.stopped != 0 {
			t.Error("certificates are no longer renewed")
		}
	})
}

func TestLifetime(t *testing.T) {
	if got := lifetime(nil); !math.IsInf(got, 1) {
		t.Errorf("no certificate is valid for %v s", got)
	}
	got := lifetime(&tls.Certificate{Leaf: &x509.Certificate{NotAfter: time.Now().Add(time.Hour)}})
	if got < 3500 || got > 3600 {
		t.Errorf("a certificate of an hour is valid for %v s", got)
	}
}
