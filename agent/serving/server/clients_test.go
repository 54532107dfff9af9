package server

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/numalet/numalet/internal/bounded"
	"github.com/numalet/numalet/internal/route"
)

// Clients that hold connections, without requests or without reading answers, do not keep others
// from being answered. The oldest of them are disconnected.
func TestClientsThatHoldConnections(t *testing.T) {
	huge := strings.Repeat("x", 32<<20)
	s, _ := start(t, Config{Listeners: []Listener{{Address: anyPort, Routes: []route.Route{
		{Method: "GET", Pattern: "/huge", Handler: http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) { route.Answer(w, []byte(huge), nil) })},
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
				break // the kernel decides which of them is idle longest
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

// pipes is a listener with in-memory connections, under the test's clock.
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

// A client that does not read its answer is disconnected after a minute.
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

// Authenticated clients keep their idle connections, whatever other clients do.
func TestStrangersPushNobodyOut(t *testing.T) {
	cert, pool := certificate(t)
	s, _ := start(t, Config{Listeners: []Listener{{
		Address: anyPort, TLS: &tls.Config{Certificates: []tls.Certificate{cert}},
		Authorize: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") == "" {
					http.Error(w, "Unauthorized", http.StatusUnauthorized)
					return
				}
				next.ServeHTTP(w, r)
			})
		},
	}}})
	address := s.Addrs()[0].String()
	client := func() *http.Client {
		c := &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: pool}, IdleConnTimeout: time.Hour}}
		t.Cleanup(c.CloseIdleConnections)
		return c
	}
	ask := func(c *http.Client, token string) (reused bool) {
		t.Helper()
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/healthz",
			nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", token)
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		return reused
	}
	known := client()
	ask(known, "sesame")
	for range bounded.Connections() + 5 {
		ask(client(), "")
	}
	if !ask(known, "sesame") {
		t.Error("the connection of a client that was let in was closed for strangers")
	}
}
