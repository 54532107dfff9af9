package bounded

import (
	"crypto/tls"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// echo echoes each byte on every connection until the test ends.
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

// asks reports whether the connection is answered; it fails the test if neither an answer nor an
// end comes.
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

// However many connections idle clients hold, the next one is answered, an active one is not closed
// for it, and there are never more than the limit.
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

// serve returns a function that accepts a connection and gives the test both ends.
func serve(t *testing.T, limit int) (accept func() (client, server net.Conn)) {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Listener(inner, limit)
	t.Cleanup(func() { _ = l.Close() })
	return func() (client, server net.Conn) {
		t.Helper()
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		server, err = l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = client.Close(), server.Close() })
		return client, server
	}
}

func closed(c net.Conn) bool {
	_, err := c.Write([]byte{1})
	return err != nil
}

// The order in which connections are closed: without a known user, idle, with a request in flight,
// streams; among these, those of the user with the most, so that nobody's many streams close
// another user's.
func TestWhoMakesWay(t *testing.T) {
	accept := serve(t, 8)
	names, all := []string{}, map[string]net.Conn{}
	kinds := map[bool]Kind{true: Stream}
	begin := func(name, user string, requests, streams int, ends bool) {
		_, c := accept()
		names, all[name] = append(names, name), c
		for i := range requests + streams {
			// TLS lies between the server and its connections.
			if done := Use(tls.Server(c, nil), user, kinds[i < streams]); ends {
				done()
			}
		}
	}
	begin("stream of one", "one", 0, 1, false)
	begin("first stream of many", "many", 0, 1, false)
	begin("second stream of many", "many", 1, 1, false)
	begin("request of many", "many", 1, 0, false)
	begin("first idle of many", "many", 3, 0, true)
	begin("second idle of many", "many", 0, 1, true)
	begin("idle of one", "one", 1, 0, true)
	begin("stranger", "", 0, 0, true)
	var went []string
	for range 20 { // from the sixth on, new has more streams than many, and loses its own
		_, next := accept()
		Use(next, "new", Stream)
		for _, name := range names {
			if closed(all[name]) && !slices.Contains(went, name) {
				went = append(went, name)
			}
		}
	}
	want := []string{"stranger", "first idle of many", "second idle of many", "idle of one",
		"request of many"}
	if !slices.Equal(went, want) {
		t.Errorf("in this order went %q, want %q", went, want)
	}
}

// Connections that clients close are not counted.
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

// piped is a listener whose connections are pipes.
type piped struct {
	net.Listener
	next net.Conn
}

func (p piped) Accept() (net.Conn, error) { return p.next, nil }

// What a client sends is read at a pace, however much it sends, but for a stream that has the
// connection for itself.
func TestPaced(t *testing.T) {
	const sent = bytesAtOnce + 10*bytesPerSecond
	paced := func(l net.Listener) net.Listener { return Paced(l, 1) }
	for name, test := range map[string]struct {
		listener func(net.Listener) net.Listener
		kind     Kind
		want     time.Duration
	}{
		"requests":          {paced, Request, 10 * time.Second},
		"a stream of many":  {paced, Stream, 10 * time.Second},
		"a stream alone":    {paced, WholeStream, 0},
		"a listener of all": {func(l net.Listener) net.Listener { return Listener(l, 1) }, Request, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				c, err := test.listener(piped{next: server}).Accept()
				if err != nil {
					t.Fatal(err)
				}
				defer Use(c, "somebody", test.kind)()
				go func() {
					_, _ = client.Write(make([]byte, sent)) // what came of it is read
					_ = client.Close()
				}()
				began := time.Now()
				n, err := io.Copy(io.Discard, c)
				if took := time.Since(began).Round(time.Second); n != sent || err != nil || took != test.want {
					t.Errorf("%d bytes after %v, %v; want %d after %v", n, took, err, sent, test.want)
				}
			})
		})
	}
}
