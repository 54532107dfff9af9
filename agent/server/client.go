package server

import (
	"cmp"
	"context"
	"net"
	"net/http"

	"golang.org/x/time/rate"

	"github.com/numalet/numalet/topology/bounded"
)

const (
	// maxStreams is how many requests there are at once over one connection of HTTP/2. A client that
	// has more makes another connection.
	maxStreams = 32
	// resetsPerSecond and resetsAtOnce are how many requests a client may give up over one connection
	// before they are answered. Each costs as much as one whose answer is read.
	resetsPerSecond, resetsAtOnce = 20, 200
)

// client is a connection with what is known of who holds it.
type client struct {
	net.Conn
	resets *rate.Limiter
}

// clientKey is the key of a request's client in its context, and userKey of its user.
type clientKey struct{}
type userKey struct{}

func withClient(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, clientKey{},
		&client{c, rate.NewLimiter(resetsPerSecond, resetsAtOnce)})
}

// WithUser says who makes a request.
func WithUser(r *http.Request, name string) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), userKey{}, name))
}

// userOf is who makes a request: a name, or where nobody is asked for one, an address.
func userOf(r *http.Request) string {
	if name, known := r.Context().Value(userKey{}).(string); known {
		return name
	}
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	return cmp.Or(host, r.RemoteAddr)
}

// used says whose requests go over a connection, and of which kind, for as long as they do.
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

// patient does nothing for a request that was given up before its turn, and closes connections over
// which too many are.
func patient(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Err() == nil {
			next.ServeHTTP(w, r)
		} else {
			givenUp(w)
		}
		c, ok := r.Context().Value(clientKey{}).(*client)
		if ok && r.Context().Err() != nil && !c.resets.Allow() {
			_ = c.Close() // its client hears of it
		}
	})
}
