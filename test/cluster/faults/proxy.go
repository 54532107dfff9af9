// Package faults stands between an agent and the API server and lets requests go wrong.
package faults

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/numalet/numalet/internal/await"
)

// Proxy is an HTTPS server that passes all requests on to the API server as the user of a
// kubeconfig, unless its Trouble stops them.
type Proxy struct {
	server   *http.Server
	listener net.Listener
	upstream *httputil.ReverseProxy
	served   chan struct{} // closed when the server has stopped

	mu      sync.Mutex // guards what follows
	random  *rand.Rand
	trouble Trouble
	instead func(http.ResponseWriter, *http.Request) bool
	over    chan struct{} // closed and replaced when the trouble changes
	open    map[net.Conn]bool
}

// Config configures a Proxy.
type Config struct {
	// Kubeconfig has the API server's address and the user.
	Kubeconfig string
	// Certificate and Key are files for 127.0.0.1, signed by an authority that the kubeconfig
	// trusts.
	Certificate, Key string
	// Random draws the requests that fail.
	Random *rand.Rand
}

// Start serves until Stop.
func Start(c Config) (*Proxy, error) {
	to, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(to.Host)
	if err != nil {
		return nil, fmt.Errorf("%s: server: %w", c.Kubeconfig, err)
	}
	transport, err := rest.TransportFor(to)
	if err != nil {
		return nil, err
	}
	certificate, err := tls.LoadX509KeyPair(c.Certificate, c.Key)
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		served: make(chan struct{}), random: c.Random, over: make(chan struct{}),
		open: map[net.Conn]bool{},
	}
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	quiet := log.New(io.Discard, "", 0) // errors here are intended
	p.upstream = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // a watch's events do not wait for more
		ErrorLog:      quiet,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	p.server = &http.Server{
		Handler: p, ErrorLog: quiet, ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
		ConnState: p.connection,
	}
	go func() {
		defer close(p.served)
		_ = p.server.ServeTLS(holes{p.listener}, "", "") // until Stop
	}()
	return p, nil
}

// URL returns its address.
func (p *Proxy) URL() string { return "https://" + p.listener.Addr().String() }

// Redirect writes a copy of a kubeconfig that leads to the proxy.
func (p *Proxy) Redirect(kubeconfig string) (file string, err error) {
	c, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return "", err
	}
	for _, cluster := range c.Clusters {
		cluster.Server = p.URL()
	}
	file = filepath.Join(filepath.Dir(kubeconfig), "kubeconfig-proxy")
	return file, clientcmd.WriteToFile(*c, file)
}

// Stop closes the proxy and all its connections.
func (p *Proxy) Stop() {
	p.Set(Trouble{})
	p.server.Close()
	<-p.served
}

// Set changes what happens to requests from now on, and lets those go on that hang because of the
// trouble before.
func (p *Proxy) Set(t Trouble) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trouble = t
	close(p.over)
	p.over = make(chan struct{})
}

// Cut closes all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		reset(c)
	}
}

// reset closes a connection with RST, as if its peer had died.
func reset(c net.Conn) {
	c = under(c)
	if h, ok := c.(*hole); ok {
		c = h.Conn
	}
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // it is closed either way
	}
	c.Close()
}

// under returns the connection below TLS.
func under(c net.Conn) net.Conn {
	if t, ok := c.(*tls.Conn); ok {
		return t.NetConn()
	}
	return c
}

// connection follows the states of connections.
func (p *Proxy) connection(c net.Conn, state http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch state {
	case http.StateNew:
		p.open[c] = true
	case http.StateClosed, http.StateHijacked:
		delete(p.open, c)
	}
}

// draw returns the trouble for a request; over is closed when the trouble ends.
func (p *Proxy) draw(watch bool) (t Trouble, over <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.trouble.of(watch) || p.random.Float64() >= p.trouble.Share {
		return Trouble{}, p.over
	}
	return p.trouble, p.over
}

// Instead sets answer, which replies in place of the API server to the requests for which it
// returns true; nil: to none. Many goroutines call it.
func (p *Proxy) Instead(answer func(http.ResponseWriter, *http.Request) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.instead = answer
}

func (p *Proxy) answered(w http.ResponseWriter, r *http.Request) bool {
	p.mu.Lock()
	answer := p.instead
	p.mu.Unlock()
	return answer != nil && answer(w, r)
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.answered(w, r) {
		return
	}
	watch := r.URL.Query().Get("watch") != ""
	t, over := p.draw(watch)
	if t.Hang && !await.On(r.Context(), over) {
		panic(http.ErrAbortHandler)
	}
	if t.Answer == 0 {
		p.pass(w, r, t, over)
		return
	}
	if t.Late && !watch { // it takes effect without an answer
		p.upstream.ServeHTTP(discarded{http.Header{}}, r)
	}
	t.answer(w, watch)
}

// pass passes a request on. A slow answer speeds up when the trouble is over.
func (p *Proxy) pass(w http.ResponseWriter, r *http.Request, t Trouble, over <-chan struct{}) {
	if t.Slow > 0 {
		w = slow{w, t.Slow, r.Context(), over}
	}
	if t.Lasts > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), t.Lasts)
		defer cancel()
		r = r.WithContext(ctx)
	}
	p.upstream.ServeHTTP(w, r)
}

// discarded is a response that is not read.
type discarded struct{ header http.Header }

func (d discarded) Header() http.Header       { return d.header }
func (discarded) Write(b []byte) (int, error) { return len(b), nil }
func (discarded) WriteHeader(int)             {}

// slow pauses before each part of an answer.
type slow struct {
	http.ResponseWriter
	pause time.Duration
	ctx   context.Context
	over  <-chan struct{}
}

var errGone = errors.New("who asked has gone")

// Write implements http.ResponseWriter.
func (s slow) Write(b []byte) (int, error) {
	select {
	case <-s.ctx.Done():
		return 0, errGone
	case <-s.over:
	case <-time.After(s.pause):
	}
	return s.ResponseWriter.Write(b)
}

// Unwrap serves http.ResponseController, which flushes.
func (s slow) Unwrap() http.ResponseWriter { return s.ResponseWriter }
