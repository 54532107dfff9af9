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

	"github.com/numalet/numalet/agent/cluster/requests"
	"github.com/numalet/numalet/internal/await"
)

const (
	// dialTimeout and keepAlive are client-go's.
	dialTimeout, keepAlive = 30 * time.Second, 30 * time.Second
	// After quiet without a byte, a ping of HTTP/2 checks whether a connection still leads
	// anywhere; its answer may take pingTimeout, since even a slow server answers pings at once.
	// client-go's 30 s and 15 s are longer than a lease allows.
	quiet, pingTimeout = 10 * time.Second, 5 * time.Second
)

// transport returns a transport whose connections Reset closes. A connection has the certificate
// that the node has when it is made, and is given up when it leads nowhere.
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

// innermost returns the transport that all others wrap; nil: it is not of net/http.
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

// wrapped is a transport with another around it.
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

// hurried shortens the pause that the API server, or a proxy before it, asks for: client-go obeys
// any, and nothing else ends a list of pods.
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

// advised adds to the error what to do about an API server's certificate that is not trusted.
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
// refused, and the caller would come back later than necessary.
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
