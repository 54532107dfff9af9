package kubeapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/connrotation"

	"github.com/numalet/numalet/agent/kubeapi/requests"
	"github.com/numalet/numalet/topology/await"
)

const (
	// dialTimeout and keepAlive are client-go's.
	dialTimeout, keepAlive = 30 * time.Second, 30 * time.Second
	// quiet is after how long without a byte a connection is asked by a ping of HTTP/2 whether it
	// still leads anywhere, and pingTimeout how long the answer may take: a server that is slow
	// answers pings at once. client-go's 30 s and 15 s are more than what a lease leaves.
	quiet, pingTimeout = 10 * time.Second, 5 * time.Second
)

// transport makes a connection that Reset closes, with the certificate that the node has when it
// is made. One that leads nowhere is given up.
func (c *Client) transport(cfg *rest.Config) (http.RoundTripper, error) {
	cfg = rest.CopyConfig(cfg)
	dialer := net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}
	dial := connrotation.NewDialerWithTracker(dialer.DialContext, c.connections)
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return newHeard(conn, c.lost), nil
	}
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return hurried{advised{rt}} })
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
	if t := innermost(rt); t != nil {
		t.HTTP2 = &http.HTTP2Config{SendPingTimeout: quiet, PingTimeout: pingTimeout}
	}
	return rt, nil
}

// innermost is the transport that all others wrap; nil: it is not of net/http.
func innermost(rt http.RoundTripper) *http.Transport {
	for {
		switch is := rt.(type) {
		case *http.Transport:
			return is
		case utilnet.RoundTripperWrapper:
			rt = is.WrappedRoundTripper()
		default:
			return nil
		}
	}
}

// hurried shortens what the API server, or a proxy before it, wants to be left alone for:
// client-go waits as long as it is told, and a list of pods with nothing else to end it.
type hurried struct{ http.RoundTripper }

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (h hurried) WrappedRoundTripper() http.RoundTripper { return h.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (h hurried) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := h.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	const name = "Retry-After"
	most := requests.LongestPause
	if seconds, err := strconv.ParseInt(answer.Header.Get(name), 10, 64); err == nil &&
		seconds > int64(most/time.Second) {
		answer.Header.Set(name, strconv.Itoa(int(most/time.Second)))
	}
	return answer, nil
}

// advised says what to do about a certificate of the API server that is not believed.
type advised struct{ http.RoundTripper }

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (a advised) WrappedRoundTripper() http.RoundTripper { return a.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (a advised) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := a.RoundTripper.RoundTrip(r)
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		err = fmt.Errorf("%w; compare this machine's clock with the API server's, and renew the "+
			"certificate of the API server if both are right", err)
	case errors.As(err, &unknown):
		err = fmt.Errorf("%w; the certificate-authority in --kubeconfig has to be that of the API "+
			"server", err)
	}
	return answer, err
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

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (w waiting) WrappedRoundTripper() http.RoundTripper { return w.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (w waiting) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-w.ready:
		return w.RoundTripper.RoundTrip(r)
	default:
	}
	if !await.On(r.Context(), w.ready) {
		return nil, fmt.Errorf("the node has no client certificate yet: %w", r.Context().Err())
	}
	return w.RoundTripper.RoundTrip(r)
}
