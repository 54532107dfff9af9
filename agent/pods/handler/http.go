package handler

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

const (
	// maxAnswer bounds the bytes read of one HTTP answer.
	maxAnswer = 1 << 20
	// maxInformed bounds the informational answers (1xx) before the final one.
	maxInformed = 5
	// maxRedirects bounds the redirects within one host that a probe follows.
	maxRedirects = 10
)

// get sends a request. It does not follow a redirect to another host, which is a success with a
// warning.
func (h *Handlers) get(ctx context.Context, a *v1.HTTPGetAction, t Target) (Outcome, error) {
	request, err := h.request(ctx, a, t, "kube-probe/")
	if err != nil {
		return Outcome{}, err
	}
	client := http.Client{Transport: h.transport(a), CheckRedirect: stayOnHost}
	answer, err := client.Do(request)
	if err != nil {
		return Outcome{Failure, messageOf(err)}, nil
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxOutput))
	switch code := answer.StatusCode; {
	case err != nil:
		return Outcome{}, err
	case code >= 200 && code < 300:
		return Outcome{Success, string(body)}, nil
	case code >= 300 && code < 400:
		return Outcome{Warning, "Probe terminated redirects, Response body: " + string(body)}, nil
	default: // the answer is not shown because it may be secret
		return Outcome{Failure, fmt.Sprintf("HTTP probe failed with statuscode: %d", code)}, nil
	}
}

// messageOf returns the error in the words of an http.Client with a timeout.
func messageOf(err error) string {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return err.Error() + " (Client.Timeout exceeded while awaiting headers)"
	}
	return err.Error()
}

func stayOnHost(next *http.Request, before []*http.Request) error {
	switch {
	case next.URL.Hostname() != before[0].URL.Hostname():
		return http.ErrUseLastResponse
	case len(before) >= maxRedirects:
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	default:
		return nil
	}
}

// request builds the handler's request. Its headers User-Agent, Accept and Host replace the
// defaults; an empty Accept omits the header.
func (h *Handlers) request(ctx context.Context, a *v1.HTTPGetAction, t Target, agent string) (
	*http.Request, error) {
	address, err := t.address(a.Host, a.Port)
	if err != nil {
		return nil, err
	}
	at, err := url.Parse(a.Path)
	if err != nil {
		at = &url.URL{Path: a.Path} // sent as it is
	}
	if at.Scheme, at.Host = strings.ToLower(string(a.Scheme)), address; at.Scheme == "" {
		at.Scheme = "http"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, err
	}
	header := request.Header
	for _, one := range a.HTTPHeaders {
		header.Add(one.Name, one.Value)
	}
	if _, set := header["User-Agent"]; !set {
		header.Set("User-Agent", agent+h.cfg.Version)
	}
	if _, set := header["Accept"]; !set {
		header.Set("Accept", "*/*")
	} else if header.Get("Accept") == "" {
		header.Del("Accept")
	}
	request.Host = header.Get("Host")
	return request, nil
}

// transport returns what sends the requests of an action.
func (h *Handlers) transport(a *v1.HTTPGetAction) http.RoundTripper {
	wanted := ptr.Deref(a.Protocol, v1.HTTPProtocolHTTP1)
	if h.cfg.HTTP2 && wanted == v1.HTTPProtocolHTTP2 && a.Scheme != v1.URISchemeHTTPS {
		return h.http2
	}
	return h
}

// RoundTrip sends a request over a new connection.
func (h *Handlers) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == "https" {
		return h.secure.RoundTrip(r)
	}
	return h.plain.RoundTrip(r)
}

// roundTrip sends HTTP/1.1 requests without TLS on the caller's goroutine, without the goroutines
// that an http.Transport has for each connection.
type roundTrip struct{ dialer *net.Dialer }

// buffers holds the buffers of closed connections.
var buffers = sync.Pool{New: func() any {
	return &buffer{bufio.NewReaderSize(nil, 2<<10), bufio.NewWriterSize(nil, 1<<10)}
}}

type buffer struct {
	in  *bufio.Reader
	out *bufio.Writer
}

// RoundTrip sends the request and reads the header of the answer.
func (t roundTrip) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	conn, err := t.dialer.DialContext(ctx, "tcp", r.URL.Host)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline) // an open connection supports deadlines
	}
	x := &exchange{conn: conn, buffer: buffers.Get().(*buffer)}
	x.stop = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	answer, err := x.ask(r)
	if err != nil {
		_ = x.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, err
	}
	x.body, answer.Body = answer.Body, x
	return answer, nil
}

// exchange is one request with its answer. It is the answer's body: Close ends the connection.
type exchange struct {
	conn   net.Conn
	buffer *buffer
	stop   func() bool
	body   io.ReadCloser
}

func (x *exchange) ask(r *http.Request) (*http.Response, error) {
	in, out := x.buffer.in, x.buffer.out
	in.Reset(io.LimitReader(x.conn, maxAnswer))
	out.Reset(x.conn)
	closing := *r
	closing.Close = true
	if err := errors.Join(closing.Write(out), out.Flush()); err != nil {
		return nil, err
	}
	if _, err := in.Peek(1); err != nil {
		return nil, err
	}
	for range maxInformed + 1 {
		answer, err := http.ReadResponse(in, r)
		if err != nil || answer.StatusCode >= 200 ||
			answer.StatusCode == http.StatusSwitchingProtocols {
			return answer, err
		}
	}
	return nil, fmt.Errorf("%s answered with more than %d informational responses", r.URL.Host,
		maxInformed)
}

func (x *exchange) Read(p []byte) (int, error) { return x.body.Read(p) }

// Close drops the unread part of the answer.
func (x *exchange) Close() error {
	if x.buffer == nil {
		return nil
	}
	x.stop()
	err := x.conn.Close()
	x.buffer.in.Reset(nil)
	x.buffer.out.Reset(nil)
	buffers.Put(x.buffer)
	x.buffer, x.body = nil, http.NoBody
	return err
}
