package server

import (
	"cmp"
	"context"
	"net"
	"net/http"

	"golang.org/x/time/rate"

	"github.com/numalet/numalet/internal/bounded"
)

const (
	// maxStreams bounds the concurrent requests on one HTTP/2 connection. Clients open another
	// connection for more.
	maxStreams = 32
	// resetsPerSecond and resetsAtOnce bound how many requests a client may cancel on one connection
	// before their answers. Each costs as much as one that is answered.
	resetsPerSecond, resetsAtOnce = 20, 200
)

// client is a connection with the rate of its cancelled requests.
type client struct {
	net.Conn
	resets *rate.Limiter
}

// clientKey is the context key of a request's client, userKey that of its user.
type clientKey struct{}
type userKey struct{}

func withClient(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, clientKey{},
		&client{c, rate.NewLimiter(resetsPerSecond, resetsAtOnce)})
}

// WithUser adds the name of the user to a request.
func WithUser(r *http.Request, name string) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), userKey{}, name))
}

// userOf returns the user of a request: a name or, without authentication, an address.
func userOf(r *http.Request) string {
	if name, known := r.Context().Value(userKey{}).(string); known {
		return name
	}
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	return cmp.Or(host, r.RemoteAddr)
}

// used registers a request's user and kind with its connection while the request lasts.
func used(next http.Handler, stream bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind := bounded.Request
		if stream {
			kind = bounded.Stream
			if r.ProtoMajor < 2 {
				kind = bounded.WholeStream
			}
		}
		if c, ok := r.Context().Value(clientKey{}).(*client); ok {
			defer bounded.Use(c.Conn, userOf(r), kind)()
		}
		next.ServeHTTP(w, r)
	})
}

// patient skips requests that were cancelled before their turn, and closes connections with too
// many cancelled requests.
func patient(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Err() == nil {
			next.ServeHTTP(w, r)
		} else {
			givenUp(w)
		}
		c, ok := r.Context().Value(clientKey{}).(*client)
		if ok && r.Context().Err() != nil && !c.resets.Allow() {
			_ = c.Close() // tells the client
		}
	})
}
