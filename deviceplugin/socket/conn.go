package socket

import (
	"context"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/stats"
)

// Conn is a connection to a plugin. After HangUp it takes no new calls, and stays open until the
// last call returns: a plugin that registers again does not cut off the call that it is answering.
type Conn struct {
	*grpc.ClientConn
	path   string
	failed atomic.Pointer[error]
	dialed atomic.Pointer[os.FileInfo] // the socket at path before the last attempt to connect

	mu    sync.Mutex // guards the fields below
	calls int        // in flight
	ended bool
}

// Dialer connects to the socket at path.
type Dialer func(ctx context.Context, path string) (net.Conn, error)

// Dial is the usual Dialer.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", path)
}

// PluginClient returns a connection to a plugin, made at its first use. It dials again and again,
// since a plugin may make its socket a moment before it listens; patience bounds each attempt.
// Errors of the plugin are cut to one line. heard returns the handler that sees the messages; nil:
// none.
func PluginClient(path string, patience time.Duration, heard func(path string) stats.Handler,
	options ...grpc.DialOption) (*Conn, error) {
	return Dialer(Dial).PluginClient(path, patience, heard, options...)
}

// PluginClient returns a connection that d dials.
func (d Dialer) PluginClient(path string, patience time.Duration,
	heard func(path string) stats.Handler, options ...grpc.DialOption) (c *Conn, err error) {
	c = &Conn{path: path}
	options = append(options, grpc.WithUnaryInterceptor(shortErrors),
		grpc.WithStreamInterceptor(shortStreamErrors),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			if at, err := os.Stat(path); err == nil {
				c.dialed.Store(&at)
			}
			conn, err := d(ctx, path)
			if err != nil {
				c.failed.Store(&err)
			}
			return conn, err
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
				MaxDelay: time.Second,
			},
			MinConnectTimeout: patience,
		}))
	if heard != nil {
		options = append(options, grpc.WithStatsHandler(heard(path)))
	}
	c.ClientConn, err = Client(path, options...)
	return c, err
}

// DialError returns the error of the last failed attempt to connect; nil: none has failed.
func (c *Conn) DialError() error {
	if err := c.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Replaced reports whether another socket is at the path than the one that was dialled: its listener
// does not have this connection.
func (c *Conn) Replaced() bool {
	before := c.dialed.Load()
	if before == nil {
		return false
	}
	now, err := os.Stat(c.path)
	return err == nil && !(os.SameFile(*before, now) && (*before).ModTime().Equal(now.ModTime()))
}

// Ready waits until the connection is made; false: ctx was done first.
func (c *Conn) Ready(ctx context.Context) bool {
	for state := c.GetState(); state != connectivity.Ready; state = c.GetState() {
		c.Connect()
		if !c.WaitForStateChange(ctx, state) {
			return false
		}
	}
	return true
}

// Enter begins a call; it returns false after HangUp.
func (c *Conn) Enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	c.calls++
	return true
}

// Leave ends a call.
func (c *Conn) Leave() { c.count(-1, false) }

// HangUp refuses further calls and closes the connection, or leaves that to the last call in
// flight.
func (c *Conn) HangUp() { c.count(0, true) }

func (c *Conn) count(more int, end bool) {
	c.mu.Lock()
	c.calls += more
	c.ended = c.ended || end
	last := c.ended && c.calls == 0
	c.mu.Unlock()
	if last {
		_ = c.Close() // closing twice is the only possible error
	}
}
