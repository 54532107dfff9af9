// Package bounded bounds the connections of listeners, so that a client that holds connections
// cannot exhaust file descriptors or memory.
package bounded

import (
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Bounds of a listener's connections. If the process has few file descriptors, the listeners
// together leave half of them to the rest of the agent.
const (
	most      = 100
	least     = 4
	listeners = 8
)

// The pace of a connection of a paced listener, in bytes. A request has some hundred of them.
const (
	bytesAtOnce    = 256 << 10
	bytesPerSecond = 32 << 10
)

// Connections returns the bound of one listener of this process.
func Connections() int {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return most
	}
	return int(max(least, min(most, files.Cur/2/listeners)))
}

// Listener accepts for ever: with limit connections open, it closes one for the next. Connections
// without a known user go first, then idle ones, then those with a request in flight, and streams
// last; among these, one of the user with the most connections, the one that was silent the
// longest.
func Listener(l net.Listener, limit int) net.Listener {
	return &listener{Listener: l, limit: limit, open: sets.New[*conn]()}
}

// Paced is a Listener that reads what clients send at a pace, so that the work that one connection
// makes has a bound, whether it comes to requests or not. A connection that a stream has for itself is
// not paced.
func Paced(l net.Listener, limit int) net.Listener {
	return &listener{Listener: l, limit: limit, paced: true, open: sets.New[*conn]()}
}

// Kind says what is done over a connection.
type Kind int

// Kinds of requests. The answer of a Stream goes on; a WholeStream has its connection for itself
// meanwhile.
const (
	Request Kind = iota
	Stream
	WholeStream
)

// Use notes that a request of a known user is in flight on a connection of a Listener, perhaps
// under TLS, until done is called. Each Use needs one done.
func Use(c net.Conn, user string, kind Kind) (done func()) {
	if under, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = under.NetConn()
	}
	own, ok := c.(*conn)
	if !ok {
		return func() {}
	}
	own.use(user, kind, 1)
	return func() { own.use(user, kind, -1) }
}

type listener struct {
	net.Listener
	limit int
	paced bool

	mu   sync.Mutex
	open sets.Set[*conn]
}

func (l *listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: accepted, of: l, moved: time.Now()}
	if l.paced {
		c.pace = rate.NewLimiter(bytesPerSecond, bytesAtOnce)
	}
	if idle := l.add(c); idle != nil {
		_ = idle.Close() // its client notices
	}
	return c, nil
}

// add adds a connection and returns the one that it displaces, if any.
func (l *listener) add(c *conn) (idle *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) >= l.limit {
		of := map[string]int{}
		for other := range l.open {
			of[other.user]++
		}
		for other := range l.open {
			if idle == nil || other.before(idle, of) {
				idle = other
			}
		}
		l.open.Delete(idle)
	}
	l.open.Insert(c)
	return idle
}

func (l *listener) remove(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open.Delete(c)
}

type conn struct {
	net.Conn
	of   *listener
	pace *rate.Limiter // of what is read; nil: none
	// The listener's lock guards the rest.
	moved             time.Time // when bytes last moved
	known             bool      // it had a request of a user
	user              string
	requests, streams int // in flight
	whole             int // of the streams, those that have the connection for themselves
}

func (c *conn) use(user string, kind Kind, more int) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.known, c.user = true, user
	c.requests += more
	if kind != Request {
		c.streams += more
	}
	if kind == WholeStream {
		c.whole += more
	}
}

// rank orders connections: the higher, the later one is closed.
func (c *conn) rank() int {
	switch {
	case c.streams > 0:
		return 3
	case c.requests > 0:
		return 2
	case c.known:
		return 1
	default:
		return 0
	}
}

// before reports whether c is closed before other; of counts each user's connections.
func (c *conn) before(other *conn, of map[string]int) bool {
	if a, b := c.rank(), other.rank(); a != b {
		return a < b
	}
	if a, b := of[c.user], of[other.user]; a != b {
		return a > b
	}
	return c.moved.Before(other.moved)
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.went(n)
	time.Sleep(c.ahead(n))
	return n, err
}

// ahead is how long to wait after so many bytes were read.
func (c *conn) ahead(n int) time.Duration {
	if c.pace == nil {
		return 0
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.whole > 0 {
		return 0
	}
	return c.pace.ReserveN(time.Now(), min(n, bytesAtOnce)).Delay()
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.went(n)
	return n, err
}

// went notes that n bytes moved.
func (c *conn) went(n int) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if n > 0 {
		c.moved = time.Now()
	}
}

func (c *conn) Close() error {
	c.of.remove(c)
	return c.Conn.Close()
}
