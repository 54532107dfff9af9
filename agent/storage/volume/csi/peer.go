package csi

import (
	"context"
	"maps"
	"path"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/numalet/numalet/deviceplugin/socket"
)

// peer is a driver behind its socket. All calls to it go over one connection, which is made at the
// first of them, and anew after a call that did not reach the driver or had no answer, or when another
// socket is in the place of its own.
type peer struct {
	driver, endpoint string

	mu   sync.Mutex // guards the fields below
	conn *socket.Conn
	gone bool // no call is to come, so the connection of a late one is not kept
	said tally
	// awaited has the calls that have no answer yet.
	awaited map[*Awaited]bool
}

// Awaited is a call that the driver has not answered.
type Awaited struct {
	Method string // NodeStageVolume
	Handle string // the volume's; empty: it is about none
	Since  time.Time
}

// tally counts a driver's calls.
type tally struct {
	calls   map[string]Count // by method
	last    string           // error
	failure time.Time
}

// enter begins a call, and returns the connection for it, which its Leave ends.
func (p *peer) enter(c caller) (*socket.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn != nil && p.conn.Replaced() {
		p.conn.HangUp()
		p.conn = nil
	}
	if p.conn == nil {
		conn, err := socket.PluginClient(p.endpoint, c.deadlines.Dial, nil, grpc.WithIdleTimeout(0),
			grpc.WithChainUnaryInterceptor(c.metrics.of(p.driver), p.count))
		if err != nil {
			return nil, err
		}
		p.conn = conn
	}
	conn := p.conn
	conn.Enter()
	if p.gone {
		p.hangUpLocked()
	}
	return conn, nil
}

// count is an interceptor that counts a call.
func (p *peer) count(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
	call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	method, at := path.Base(method), method
	done := p.await(method, req)
	err := call(ctx, at, req, reply, conn, opts...)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.awaited, done)
	if p.said.calls == nil {
		p.said.calls = map[string]Count{}
	}
	n := p.said.calls[method]
	n.All++
	if err != nil {
		n.Failed++
		p.said.last, p.said.failure = method+": "+err.Error(), time.Now()
	}
	p.said.calls[method] = n
	return err
}

// await notes a call that begins.
func (p *peer) await(method string, req any) *Awaited {
	one := &Awaited{Method: method, Since: time.Now()}
	if of, is := req.(interface{ GetVolumeId() string }); is {
		one.Handle = of.GetVolumeId()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.awaited == nil {
		p.awaited = map[*Awaited]bool{}
	}
	p.awaited[one] = true
	return one
}

// awaits returns the oldest call about a volume that has no answer.
func (p *peer) awaits(handle string) (oldest Awaited, has bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for one := range p.awaited {
		if one.Handle == handle && (!has || one.Since.Before(oldest.Since)) {
			oldest, has = *one, true
		}
	}
	return oldest, has
}

// tally returns the counts so far.
func (p *peer) tally() tally {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.said
	out.calls = maps.Clone(out.calls)
	return out
}

// drop has the next call make a connection, unless another call has already.
func (p *peer) drop(conn *socket.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == conn {
		p.hangUpLocked()
	}
}

// leave ends the connection with the last call.
func (p *peer) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	p.hangUpLocked()
}

func (p *peer) hangUpLocked() {
	if p.conn != nil {
		p.conn.HangUp()
		p.conn = nil
	}
}
