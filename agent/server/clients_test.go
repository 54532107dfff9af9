package server

import (
	"bufio"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/numalet/numalet/topology/bounded"
)

// Clients that hold connections, with no request or with an answer that they do not read, keep
// nobody else from being answered, and the oldest of them are let go.
func TestClientsThatHoldConnections(t *testing.T) {
	huge := strings.Repeat("x", 32<<20)
	s, _ := start(t, Config{Listeners: []Listener{{Address: anyPort, Routes: []Route{
		{"GET", "/huge", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			answer(w, []byte(huge), nil)
		})},
	}}}})
	addr := s.Addrs()[0]
	for name, request := range map[string]string{
		"idle": "", "deaf": "GET /huge HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		var held []net.Conn
		for range bounded.Connections() + 10 {
			c, err := net.Dial("tcp", addr.String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			if _, err := c.Write([]byte(request)); err != nil {
				t.Fatal(err)
			}
			held = append(held, c)
		}
		if code, body := getHealth(t, addr); code != 200 {
			t.Errorf("%s: %d %s", name, code, body)
		}
		for i, c := range held[:10] {
			if name == "deaf" {
				break // which ones nothing went over for the longest time is the kernel's to say
			}
			if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			_, err := c.Read(make([]byte, 1))
			if timeout, ok := err.(net.Error); err == nil || ok && timeout.Timeout() {
				t.Errorf("connection %d is held: %v", i, err)
			}
		}
	}
}

func getHealth(t *testing.T, addr net.Addr) (int, string) {
	t.Helper()
	return request(t, "GET", addr, "/healthz")
}

// pipes is a listener whose connections are in memory, under the test's clock.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, open := <-p
	if !open {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// A client that does not read its answer is cut off after a minute.
func TestAnswerThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wrote := make(chan error, 1)
		e := &endpoint{server: newHTTPServer(http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) {
				_, err := w.Write(make([]byte, 1<<20))
				wrote <- err
			}))}
		listener := make(pipes, 1)
		served := make(chan error, 1)
		go func() { served <- e.server.Serve(listener) }()
		client, server := net.Pipe()
		listener <- server
		if _, err := client.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := <-wrote; err == nil || time.Since(began) > requestTimeout {
			t.Errorf("the answer was written after %v: %v", time.Since(began), err)
		}
		if _, err := bufio.NewReader(client).ReadByte(); err == nil {
			t.Error("the connection is open")
		}
		close(listener)
		<-served
		_ = e.server.Close()
	})
}
