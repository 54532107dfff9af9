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
	"github.com/numalet/numalet/internal/await"
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
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return wrapped{wrapped{rt, advised}, hurried}
	})
	if c.rotation != nil {
		cfg.CertFile, cfg.KeyFile, cfg.CertData, cfg.KeyData = "", "", nil, nil
		cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return wrapped{rt, c.whenReady} })
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

// wrapped is a transport around which something is done.
type wrapped struct {
	http.RoundTripper
	do func(rt http.RoundTripper, r *http.Request) (*http.Response, error)
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (w wrapped) WrappedRoundTripper() http.RoundTripper { return w.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (w wrapped) RoundTrip(r *http.Request) (*http.Response, error) {
	return w.do(w.RoundTripper, r)
}

// hurried shortens what the API server, or a proxy before it, wants to be left alone for:
// client-go waits as long as it is told, and a list of pods with nothing else to end it.
func hurried(rt http.RoundTripper, r *http.Request) (*http.Response, error) {
	answer, err := rt.RoundTrip(r)
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
func advised(rt http.RoundTripper, r *http.Request) (*http.Response, error) {
	answer, err := rt.RoundTrip(r)
	invalid, isInvalid := errors.AsType[x509.CertificateInvalidError](err)
	_, isUnknown := errors.AsType[x509.UnknownAuthorityError](err)
	switch {
	case isInvalid && invalid.Reason == x509.Expired:
		err = fmt.Errorf("%w; compare this machine's clock with the API server's, and renew the "+
			"certificate of the API server if both are right", err)
	case isUnknown:
		err = fmt.Errorf("%w; the certificate-authority in --kubeconfig has to be that of the API "+
			"server", err)
	}
	return answer, err
}

// whenReady has requests wait until the node has its certificate: without one they would be
// refused, and whoever asked would come back later than need be.
func (c *Client) whenReady(rt http.RoundTripper, r *http.Request) (*http.Response, error) {
	select {
	case <-c.ready:
		return rt.RoundTrip(r)
	default:
	}
	if !await.On(r.Context(), c.ready) {
		return nil, fmt.Errorf("the node has no client certificate yet: %w", r.Context().Err())
	}
	return rt.RoundTrip(r)
}
