package cluster_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/harness"
)

// connect connects to the node's own server.
func (a *attacked) connect(protocol string) (net.Conn, error) {
	return tls.Dial("tcp", a.address(), &tls.Config{NextProtos: []string{protocol},
		InsecureSkipVerify: true}) //nolint:gosec // who answers is not what is looked at
}

func (a *attacked) dial(protocol string) net.Conn {
	a.t.Helper()
	c, err := a.connect(protocol)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { _ = c.Close() })
	return c
}

// manyConnections: a client that may only read the node's health opens more idle connections than
// allowed; the logs and the command that another client follows go on.
func (a *attacked) manyConnections() {
	ctx, cancel := context.WithCancel(a.t.Context())
	follow := a.c.Kubectl(ctx, "logs", "--follow", "good")
	ended := make(chan error, 1)
	if err := follow.Start(); err != nil {
		cancel()
		a.t.Fatal(err)
	}
	go func() { ended <- follow.Wait() }()
	gone := false
	defer func() {
		cancel()
		if !gone {
			<-ended
		}
	}()
	a.eventuallyFollowed()
	for range 110 + a.random.IntN(50) {
		c := a.dial("http/1.1")
		fmt.Fprintf(c, "GET /healthz HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", a.weak)
		line, err := bufio.NewReader(c).ReadString('\n')
		if err != nil || line != "HTTP/1.1 200 OK\r\n" {
			a.t.Fatalf("one who may ask for the node's health is answered %q, %v", line, err)
		}
	}
	select {
	case err := <-ended:
		gone = true
		a.t.Errorf("logs that are followed were cut: %v", err)
	case <-time.After(time.Second):
	}
}

// eventuallyFollowed waits until a client can follow logs again.
func (a *attacked) eventuallyFollowed() {
	a.t.Helper()
	harness.Eventually(a.t, "logs are followed", func() error {
		code, text := asker{a.t, a.url(), a.gauge}.ask(http.MethodGet, "/metrics")
		const line = `kubelet_http_inflight_requests{long_running="false",method="GET",` +
			`path="containerLogs",server_type="readwrite"} 1`
		if code != http.StatusOK || !strings.Contains(text, line) {
			return fmt.Errorf("metrics, %d, have no %s", code, line)
		}
		return nil
	})
}

// frames is an HTTP/2 connection that requests the node's pods and has no room for answers.
type frames struct {
	*http2.Framer
	fields bytes.Buffer
}

func (a *attacked) frames(c net.Conn) (*frames, error) {
	out := &frames{Framer: http2.NewFramer(c, c)}
	encoder := hpack.NewEncoder(&out.fields)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":path", "/pods"},
		{":authority", "x"}, {"authorization", "Bearer " + a.reader}} {
		if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			return nil, err
		}
	}
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		return nil, err
	}
	return out, out.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize})
}

// ask sends a request; false: the connection is closed.
func (f *frames) ask(i int) bool {
	return f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), EndStream: true,
		EndHeaders: true, BlockFragment: f.fields.Bytes()}) == nil
}

// deafClients: clients request the node's pods over hundreds of streams and read nothing. A pod
// starts meanwhile.
func (a *attacked) deafClients() {
	const large = 5
	for i := range large { // so that each answer has a megabyte
		a.pod(fmt.Sprint("large", i), func(p *v1.Pod) {
			p.Annotations = map[string]string{"a": strings.Repeat("x", 200<<10)}
		})
	}
	for i := range large {
		await(a.t, a.c, a.c.Namespace, fmt.Sprint("large", i), runs)
	}
	for range 40 {
		c := a.dial("http/1.1")
		fmt.Fprintf(c, "GET /pods HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", a.reader)
	}
	for range 8 {
		f, err := a.frames(a.dial("h2"))
		if err != nil {
			a.t.Fatal(err)
		}
		go func() { // otherwise nothing more is sent
			for {
				if _, err := f.ReadFrame(); err != nil {
					return
				}
			}
		}()
		for i := range 200 {
			if !f.ask(i) {
				break
			}
		}
	}
	a.c.Apply(bound(a.n.Name, "beside", ""))
	await(a.t, a.c, a.c.Namespace, "beside", runs)
	a.remove("beside")
	for i := range large {
		a.remove(fmt.Sprint("large", i))
	}
}

const (
	// resetting is the number of connections that reset at the same time: below a listener's bound,
	// so that none is closed in favour of another.
	resetting = 60
	// resetsAtOnce, resetsPerSecond and streamsAtOnce are the server's bounds for one connection.
	resetsAtOnce, resetsPerSecond, streamsAtOnce = 200, 20, 32
)

// rapidResets: clients send requests and cancel them at once over many connections, and reconnect
// when one is closed. A pod starts meanwhile, and each connection's requests are handled up to a
// bound.
func (a *attacked) rapidResets() {
	quiet := a.start("alone")
	ctx, cancel := context.WithCancel(a.t.Context())
	before, began := a.podRequests(), time.Now()
	var connections atomic.Int64
	var clients sync.WaitGroup
	for range resetting {
		clients.Go(func() {
			for ctx.Err() == nil {
				c, err := a.connect("h2")
				if err != nil {
					continue // it made way for another one
				}
				connections.Add(1)
				a.reset(ctx, c)
			}
		})
	}
	used := a.n.CPU()
	beside := a.start("beside")
	cores := (a.n.CPU() - used).Seconds() / time.Since(began).Seconds()
	cancel()
	clients.Wait()
	made, asked := connections.Load(), a.podRequests()-before
	a.t.Logf("a pod alone started after %v, beside the resets after %v; %d connections, %.0f requests, "+
		"%.1f CPUs", quiet, beside, made, asked, cores)
	most := float64(made)*(resetsAtOnce+streamsAtOnce) +
		resetting*resetsPerSecond*(1+time.Since(began).Seconds())
	if asked == 0 || asked > most {
		a.t.Errorf("over %d connections %.0f requests that were given up were looked at, want some "+
			"and at most %.0f", made, asked, most)
	}
}

// reset cancels one request after the other until the connection or the attack ends.
func (a *attacked) reset(ctx context.Context, c net.Conn) {
	defer c.Close()
	f, err := a.frames(c)
	if err != nil {
		return // it made way for another one
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for {
			if _, err := f.ReadFrame(); err != nil {
				return
			}
		}
	}()
	for i := 0; ctx.Err() == nil; i++ {
		if !f.ask(i) || f.WriteRSTStream(uint32(2*i+1), http2.ErrCodeCancel) != nil {
			break // it was closed, as it should be
		}
	}
	_ = c.Close()
	<-closed
}

// start starts a pod, removes it, and returns how long the start took.
func (a *attacked) start(name string) time.Duration {
	a.t.Helper()
	began := time.Now()
	a.c.Apply(bound(a.n.Name, name, ""))
	await(a.t, a.c, a.c.Namespace, name, runs)
	took := time.Since(began)
	a.remove(name)
	return took
}

// podRequests returns how many requests for its pods the node has handled.
func (a *attacked) podRequests() (n float64) {
	a.t.Helper()
	code, text := asker{a.t, a.url(), a.gauge}.ask(http.MethodGet, "/metrics")
	if code != http.StatusOK {
		a.t.Fatalf("metrics: %d %s", code, text)
	}
	const line = `kubelet_http_requests_total{long_running="false",method="GET",path="pods",` +
		`server_type="readwrite"} `
	if _, after, found := strings.Cut(text, line); found {
		if _, err := fmt.Sscan(after, &n); err != nil {
			a.t.Fatal(err)
		}
	}
	return n
}
