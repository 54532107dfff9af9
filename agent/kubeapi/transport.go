package kubeapi

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/connrotation"
)

// dialTimeout and keepAlive are client-go's.
const dialTimeout, keepAlive = 30 * time.Second, 30 * time.Second

// transport makes a connection that Reset closes, with the certificate that the node has when it
// is made.
func (c *Client) transport(cfg *rest.Config) (http.RoundTripper, error) {
	cfg = rest.CopyConfig(cfg)
	dialer := net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}
	cfg.Dial = connrotation.NewDialerWithTracker(dialer.DialContext, c.connections).DialContext
	if c.rotation != nil {
		cfg.CertFile, cfg.KeyFile, cfg.CertData, cfg.KeyData = "", "", nil, nil
		cfg.Wrap(c.whenReady)
	}
	tc, err := cfg.TransportConfig()
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	if c.rotation != nil {
		tc.TLS.GetCertHolder = &transport.GetCertHolder{
			GetCert: func() (*tls.Certificate, error) { return c.rotation.manager.Current(), nil },
		}
	}
	rt, err := transport.New(tc)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	return rt, nil
}

// whenReady has requests wait until the node has its certificate: without one they would be
// refused, and whoever asked would come back later than need be.
func (c *Client) whenReady(rt http.RoundTripper) http.RoundTripper {
	return waiting{rt, c.ready}
}

type waiting struct {
	http.RoundTripper
	ready <-chan struct{}
}

func (w waiting) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-w.ready:
		return w.RoundTripper.RoundTrip(r)
	default:
	}
	select {
	case <-w.ready:
		return w.RoundTripper.RoundTrip(r)
	case <-r.Context().Done():
		return nil, fmt.Errorf("the node has no client certificate yet: %w", r.Context().Err())
	}
}
