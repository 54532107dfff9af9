package dra

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/keepalive"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"github.com/numalet/numalet/deviceplugin/socket"
)

// link is the connection to an instance, for its calls and its health stream.
type link struct {
	*socket.Conn
	client drav1.DRAPluginClient
	// over ends with the link, and the health stream with it.
	over context.Context
	end  context.CancelFunc

	mu sync.Mutex // guards the fields below
	// suspect: a call had no answer, and none has had one since.
	suspect bool
	// look is when it is looked at whether the link is good.
	look time.Time
	// cut ends the wait of the goroutine that keeps the connection.
	cut context.CancelFunc
}

// newLink makes a connection; it does not dial.
func (d *Drivers) newLink(in introduction) (*link, error) {
	// A connection that idles out would be made anew for the next call.
	conn, err := d.cfg.dial.PluginClient(in.endpoint, d.cfg.Deadlines.Dial, d.cfg.Heard,
		grpc.WithIdleTimeout(0), grpc.WithKeepaliveParams(pings),
		grpc.WithChainUnaryInterceptor(d.metrics.of(in.driver)))
	if err != nil {
		return nil, err
	}
	l := &link{Conn: conn, client: drav1.NewDRAPluginClient(conn), cut: func() {}}
	l.over, l.end = context.WithCancel(context.Background())
	if in.service == drav1beta1.DRAPluginService {
		l.client = drav1beta1.V1Beta1ClientWrapper{
			DRAPluginClient: drav1beta1.NewDRAPluginClient(conn),
		}
	}
	l.wait(d.cfg.Deadlines.Silence)
	return l, nil
}

// pings find a dead connection while it has a health stream. gRPC servers close connections that ping
// more often than every five minutes, or without a call.
var pings = keepalive.ClientParameters{
	Time: 5*time.Minute + 10*time.Second, Timeout: 20 * time.Second,
}

// HangUp ends the link's stream at once, and the link after its last call.
func (l *link) HangUp() {
	l.end()
	l.Conn.HangUp()
}

// wait puts off the next look at the link.
func (l *link) wait(silence time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.look = time.Now().Add(silence)
}

// answered notes that the other side is there.
func (l *link) answered(silence time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.suspect, l.look = false, time.Now().Add(silence)
}

// doubt notes that the other side may be gone: the link is looked at at once.
func (l *link) doubt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.suspect, l.look = true, time.Now()
	l.cut()
}

// until returns a context that ends when the link is to be looked at, or earlier.
func (l *link) until(ctx context.Context) (context.Context, context.CancelFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ctx, l.cut = context.WithDeadline(ctx, l.look)
	return ctx, l.cut
}

// isDue reports whether the link is to be looked at.
func (l *link) isDue() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !time.Now().Before(l.look)
}

// isDead reports whether the other side may be gone although the connection is open: a call had no
// answer, or another plugin has put its socket into the place.
func (l *link) isDead() bool {
	l.mu.Lock()
	suspect := l.suspect
	l.mu.Unlock()
	return suspect || l.Replaced()
}

// changes waits until the connection has another state. False: it is connected and dead, or ctx is
// done. silence is the time between two looks.
func (l *link) changes(ctx context.Context, state connectivity.State, silence time.Duration) bool {
	if state != connectivity.Ready {
		return l.WaitForStateChange(ctx, state)
	}
	for ctx.Err() == nil {
		waiting, cancel := l.until(ctx)
		changed := l.WaitForStateChange(waiting, state)
		cancel()
		switch {
		case changed:
			return true
		case !l.isDue(): // a call was answered meanwhile
		case l.isDead():
			return false
		default:
			l.wait(silence)
		}
	}
	return false
}
