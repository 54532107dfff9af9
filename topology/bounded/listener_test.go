package bounded

import (
	"crypto/tls"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// echo answers each byte with itself on every connection until the test ends.
func echo(t *testing.T, limit int) (l *listener, dial func() net.Conn) {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l = Listener(inner, limit).(*listener)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				b := make([]byte, 1)
				for {
					if _, err := c.Read(b); err != nil {
						return
					}
					if _, err := c.Write(b); err != nil {
						return
					}
				}
			})
		}
	})
	var clients []net.Conn
	t.Cleanup(func() {
		for _, c := range clients {
			_ = c.Close()
		}
		_ = l.Close()
		serving.Wait()
	})
	return l, func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
		return c
	}
}

// asks reports whether the connection is answered; it fails the test if nothing comes of it.
func asks(t *testing.T, c net.Conn) bool {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	b := []byte{7}
	if _, err := c.Write(b); err != nil {
		return false
	}
	_, err := c.Read(b)
	if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
		t.Fatal("neither answered nor closed")
	}
	return err == nil
}

// However many connections idle clients hold, the next one is answered, one that is used is not
// closed for it, and there are never more than the limit.
func TestIdleConnectionsMakeWay(t *testing.T) {
	const limit = 5
	l, dial := echo(t, limit)
	busy := dial()
	for i := range 20 * limit {
		if !asks(t, busy) {
			t.Fatalf("the one that is used was closed at the %d. connection", i)
		}
		if !asks(t, dial()) {
			t.Fatalf("the %d. connection was not answered", i)
		}
		l.mu.Lock()
		n := len(l.open)
		l.mu.Unlock()
		if n > limit {
			t.Fatalf("%d connections", n)
		}
	}
}

// A connection that is to be kept outlives those that are not, however idle it is; of kept ones the
// one over which nothing went for the longest time goes.
func TestKeptConnectionsStay(t *testing.T) {
	const limit = 5
	l, dial := echo(t, limit)
	keep := func() net.Conn {
		c := dial()
		if !asks(t, c) {
			t.Fatal("not answered")
		}
		l.mu.Lock()
		all := slices.Collect(maps.Keys(l.open))
		l.mu.Unlock()
		for _, open := range all {
			if open.RemoteAddr().String() == c.LocalAddr().String() {
				Keep(tls.Server(open, nil))
			}
		}
		return c
	}
	first := keep()
	for range 5 * limit {
		if !asks(t, dial()) {
			t.Fatal("a stranger was not answered")
		}
	}
	if !asks(t, first) {
		t.Error("the connection that was to be kept was closed for strangers")
	}
	var others []net.Conn
	for range limit {
		others = append(others, keep())
	}
	if asks(t, first) {
		t.Error("the oldest of kept connections was not closed for another one")
	}
	for i, c := range others {
		if !asks(t, c) {
			t.Errorf("the %d. was closed", i)
		}
	}
}

// What clients close themselves is not counted.
func TestClosedConnectionsAreForgotten(t *testing.T) {
	l, dial := echo(t, 3)
	kept := dial()
	for range 50 {
		c := dial()
		if !asks(t, c) || !asks(t, kept) {
			t.Fatal("not answered")
		}
		_ = c.Close()
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		n := len(l.open)
		l.mu.Unlock()
		if n == 1 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d connections are counted, one is open", n)
		}
	}
}

// All listeners together leave descriptors for the rest.
func TestConnections(t *testing.T) {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	n := Connections()
	if n < least || n > most || n > least && uint64(n*listeners) > files.Cur/2 {
		t.Errorf("%d connections with %d descriptors", n, files.Cur)
	}
}
