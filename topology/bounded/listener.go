// Package bounded has listeners with a bound on their connections, so that clients that hold
// connections cost nobody else file descriptors or memory.
package bounded

import (
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/sets"
)

// The bounds of a listener: most connections, and fewer where the process has few file descriptors,
// of which all listeners together leave half to the rest of the agent.
const (
	most      = 100
	least     = 4
	listeners = 8
)

// Connections is the bound of one listener of this process.
func Connections() int {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return most
	}
	return int(max(least, min(most, files.Cur/2/listeners)))
}

// Listener accepts for ever: when there are limit connections, the one over which nothing has gone
// for the longest time is closed for the next one, of those that are not kept if there is any.
func Listener(l net.Listener, limit int) net.Listener {
	return &listener{Listener: l, limit: limit, open: sets.New[*conn]()}
}

// Keep has a connection of a Listener, which may be under TLS, be closed after those of clients that
// did not get as far: an exec over which nothing goes is not to go for a hundred strangers.
func Keep(c net.Conn) {
	if under, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = under.NetConn()
	}
	if own, ok := c.(*conn); ok {
		own.of.mu.Lock()
		defer own.of.mu.Unlock()
		own.kept = true
	}
}

type listener struct {
	net.Listener
	limit int

	mu   sync.Mutex
	open sets.Set[*conn]
}

func (l *listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: accepted, of: l, moved: time.Now()}
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
		for other := range l.open {
			if idle == nil || other.before(idle) {
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
	of *listener
	// The listener's lock guards when something last went over it, and whether it is kept.
	moved time.Time
	kept  bool
}

// before reports whether a connection goes before another one.
func (c *conn) before(other *conn) bool {
	if c.kept != other.kept {
		return !c.kept
	}
	return c.moved.Before(other.moved)
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.went(n)
	return n, err
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
