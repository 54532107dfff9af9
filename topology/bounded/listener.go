// Package bounded has listeners with a bound on their connections, so that clients that hold
// connections cost nobody else file descriptors or memory.
package bounded

import (
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/sets"
)

// The bounds of a listener: most connections, and fewer where the process has few file descriptors,
// of which all listeners together leave half to the rest of the agent.
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

// Connections is the bound of one listener of this process.
func Connections() int {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return most
	}
	return int(max(least, min(most, files.Cur/2/listeners)))
}

// Listener accepts for ever: when there are limit connections, one is closed for the next. Those of
// strangers go first, then idle ones, those with a request under way, and streams last; of the same
// kind one of the user who has the most, over which nothing has gone for the longest time.
func Listener(l net.Listener, limit int) net.Listener {
	return &listener{Listener: l, limit: limit, open: sets.New[*conn]()}
}

// Paced is a Listener that reads what clients send at a pace, so that the work that one connection
// makes has a bound, whether it comes to requests or not. What goes over a connection that a stream
// has for itself is not paced.
func Paced(l net.Listener, limit int) net.Listener {
	return &listener{Listener: l, limit: limit, paced: true, open: sets.New[*conn]()}
}

// Kind says what is done over a connection.
type Kind int

// The kinds of what is done. The answer of a Stream goes on; a WholeStream is the only request that its
// connection has meanwhile.
const (
	Request Kind = iota
	Stream
	WholeStream
)

// Use says that a request of a user, who is known, goes over a connection of a Listener, which may be
// under TLS, until done is called. Each call of Use has one of done.
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
		_ = idle.Close() // its client hears of it
	}
	return c, nil
}

// add takes a connection in and returns the one that has to go for it, if any.
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
	// The listener's lock guards what follows.
	moved             time.Time // when something last went over it
	known             bool      // it has had a request of a user
	user              string
	requests, streams int // under way
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

// rank is the greater, the later a connection goes.
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

// before reports whether a connection goes before another one; of is how many each user has.
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

// went notes that so many bytes went over the connection.
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
