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
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/harness"
)

// dial connects to the node's own server.
func (a *attacked) dial(protocol string) net.Conn {
	a.t.Helper()
	c, err := tls.Dial("tcp", a.address(), &tls.Config{NextProtos: []string{protocol},
		InsecureSkipVerify: true}) //nolint:gosec // who answers is not what is looked at
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { _ = c.Close() })
	return c
}

// manyConnections: more idle connections than there may be of one who may ask for the node's health
// cut neither the logs nor the command that somebody else follows.
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

// eventuallyFollowed waits until the node answers one who follows logs.
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

// frames is a connection of HTTP/2 on which requests for the node's pods are sent, whose answers have
// no room.
type frames struct {
	*http2.Framer
	fields bytes.Buffer
}

func (a *attacked) frames() *frames {
	a.t.Helper()
	c := a.dial("h2")
	out := &frames{Framer: http2.NewFramer(c, c)}
	encoder := hpack.NewEncoder(&out.fields)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":path", "/pods"},
		{":authority", "x"}, {"authorization", "Bearer " + a.reader}} {
		if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			a.t.Fatal(err)
		}
	}
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		a.t.Fatal(err)
	}
	if err := out.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize}); err != nil {
		a.t.Fatal(err)
	}
	return out
}

// ask sends a request; false: the connection is closed.
func (f *frames) ask(i int) bool {
	return f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), EndStream: true,
		EndHeaders: true, BlockFragment: f.fields.Bytes()}) == nil
}

// deafClients: they ask for the node's pods, over hundreds of streams, and read nothing. A pod starts
// beside them.
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
		f := a.frames()
		go func() { // or nothing is sent any more
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

// rapidResets: requests are sent and given up at once, over some connections. A pod starts beside them.
func (a *attacked) rapidResets() {
	ctx, cancel := context.WithCancel(a.t.Context())
	var resetting sync.WaitGroup
	for range 4 {
		f := a.frames()
		resetting.Go(func() {
			go func() {
				for {
					if _, err := f.ReadFrame(); err != nil {
						return
					}
				}
			}()
			for i := 0; ctx.Err() == nil; i++ {
				if !f.ask(i) || f.WriteRSTStream(uint32(2*i+1), http2.ErrCodeCancel) != nil {
					return // it was closed, as it ought to be
				}
			}
		})
	}
	a.c.Apply(bound(a.n.Name, "beside", ""))
	await(a.t, a.c, a.c.Namespace, "beside", runs)
	cancel()
	resetting.Wait()
	a.remove("beside")
}
