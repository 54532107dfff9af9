package dra

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"github.com/numalet/numalet/deviceplugin/socket"
)

// link is one connection to an instance, for calls.
type link struct {
	*socket.Conn
	client drav1.DRAPluginClient

	mu sync.Mutex
	// trusted is the time until which the other side may be silent.
	trusted time.Time
	// cut ends the wait of the goroutine that keeps the connection.
	cut context.CancelFunc
}

// newLink makes a connection; it does not dial.
func (d *Drivers) newLink(in introduction) (*link, error) {
	conn, err := d.connection(in.endpoint,
		grpc.WithChainUnaryInterceptor(d.metrics.of(in.driver)))
	if err != nil {
		return nil, err
	}
	l := &link{Conn: conn, client: drav1.NewDRAPluginClient(conn), cut: func() {}}
	if in.service == drav1beta1.DRAPluginService {
		l.client = drav1beta1.V1Beta1ClientWrapper{
			DRAPluginClient: drav1beta1.NewDRAPluginClient(conn),
		}
	}
	l.trust(d.cfg.Deadlines.Silence)
	return l, nil
}

// connection makes a connection that never idles out.
func (d *Drivers) connection(path string, options ...grpc.DialOption) (*socket.Conn, error) {
	return d.cfg.dial.PluginClient(path, d.cfg.Deadlines.Dial, d.cfg.Heard,
		append(options, grpc.WithIdleTimeout(0))...)
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
		return l.WaitForStateChange(ctx, state)
	}
	for ctx.Err() == nil && l.isTrusted() {
		waiting, cancel := l.trial(ctx)
		changed := l.WaitForStateChange(waiting, state)
		cancel()
		if changed {
			return true
		}
	}
	return false
}
