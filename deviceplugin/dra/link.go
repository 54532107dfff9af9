package dra

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"github.com/numalet/numalet/deviceplugin/socket"
)

// link is one connection to an instance, for calls.
type link struct {
	conn    *grpc.ClientConn
	client  drav1.DRAPluginClient
	callers socket.Callers

	mu sync.Mutex
	// trusted is the time until which the other side may be silent.
	trusted time.Time
	// cut ends the wait of the goroutine that keeps the connection.
	cut context.CancelFunc
}

// newLink makes a connection; it does not dial.
func (d *Drivers) newLink(in introduction, failed *atomic.Pointer[error]) (*link, error) {
	conn, err := d.connection(in.endpoint, failed,
		grpc.WithChainUnaryInterceptor(d.metrics.of(in.driver)))
	if err != nil {
		return nil, err
	}
	l := &link{conn: conn, client: drav1.NewDRAPluginClient(conn), cut: func() {}}
	if in.service == drav1beta1.DRAPluginService {
		l.client = drav1beta1.V1Beta1ClientWrapper{
			DRAPluginClient: drav1beta1.NewDRAPluginClient(conn),
		}
	}
	l.trust(d.cfg.Deadlines.Silence)
	return l, nil
}

// connection makes a connection that never idles out; failed gets the errors of dialling.
func (d *Drivers) connection(path string, failed *atomic.Pointer[error],
	options ...grpc.DialOption) (*grpc.ClientConn, error) {
	return socket.PluginClient(path, d.cfg.Deadlines.Dial, d.cfg.Heard, append(options,
		grpc.WithIdleTimeout(0),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := d.cfg.dial(ctx, path)
			if err != nil {
				failed.Store(&err)
			}
			return conn, err
		}))...)
}

// trust notes that the other side is there, and may be silent for so long.
func (l *link) trust(silence time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trusted = time.Now().Add(silence)
}

// doubt has the connection replaced at once.
func (l *link) doubt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trusted = time.Now()
	l.cut()
}

// trial returns a context that ends when the connection is no longer trusted, or earlier.
func (l *link) trial(ctx context.Context) (context.Context, context.CancelFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ctx, l.cut = context.WithDeadline(ctx, l.trusted)
	return ctx, l.cut
}

func (l *link) isTrusted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.trusted)
}

// changes waits until the connection has another state. False: it is connected and no longer
// trusted, or ctx is done.
func (l *link) changes(ctx context.Context, state connectivity.State) bool {
	if state != connectivity.Ready {
		return l.conn.WaitForStateChange(ctx, state)
	}
	for ctx.Err() == nil && l.isTrusted() {
		waiting, cancel := l.trial(ctx)
		changed := l.conn.WaitForStateChange(waiting, state)
		cancel()
		if changed {
			return true
		}
	}
	return false
}

// leave ends a call.
func (l *link) leave() {
	if l.callers.Leave() {
		l.close()
	}
}

// hangUp closes the connection, or leaves that to the last call in flight.
func (l *link) hangUp() {
	if l.callers.End() {
		l.close()
	}
}

func (l *link) close() {
	_ = l.conn.Close() // closing twice is the only possible error
}
