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

// Proxy is an HTTPS server that passes requests on to the API server as the user of a kubeconfig,
// whoever makes them, as far as its Trouble lets them pass.
type Proxy struct {
	server   *http.Server
	listener net.Listener
	upstream *httputil.ReverseProxy
	served   chan struct{} // closed when the server has ended

	mu      sync.Mutex // guards what follows
	random  *rand.Rand
	trouble Trouble
	instead func(http.ResponseWriter, *http.Request) bool
	over    chan struct{} // closed and replaced when the trouble changes
	open    map[net.Conn]bool
}

// Config says what a proxy stands before, and as whom.
type Config struct {
	// Kubeconfig says where the API server is, and who asks.
	Kubeconfig string
	// Certificate and Key are files for 127.0.0.1, by an authority that the kubeconfig trusts.
	Certificate, Key string
	// Random draws what happens to which request.
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
	quiet := log.New(io.Discard, "", 0) // what goes wrong here is meant to
	p.upstream = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // events of a watch do not wait for more
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

// URL is where it listens.
func (p *Proxy) URL() string { return "https://" + p.listener.Addr().String() }

// Redirect writes a kubeconfig that is like another one but leads to the proxy.
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

// Stop ends it with all that goes through it.
func (p *Proxy) Stop() {
	p.Set(Trouble{})
	p.server.Close()
	<-p.served
}

// Set is what happens to requests from now on; those that hang for what it was before go on.
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

// reset closes a connection as one does whose peer has died: without a word about it.
func reset(c net.Conn) {
	c = under(c)
	if h, ok := c.(*hole); ok {
		c = h.Conn
	}
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // it is closed in any case
	}
	c.Close()
}

// under is what a connection with TLS is made of.
func under(c net.Conn) net.Conn {
	if t, ok := c.(*tls.Conn); ok {
		return t.NetConn()
	}
	return c
}

// connection is told what becomes of connections.
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

// draw is what is to happen to a request; over is closed when the trouble is.
func (p *Proxy) draw(watch bool) (t Trouble, over <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.trouble.of(watch) || p.random.Float64() >= p.trouble.Share {
		return Trouble{}, p.over
	}
	return p.trouble, p.over
}

// Instead has requests be answered in place of the API server that answer returns true for; nil: none
// are. It is called by many goroutines.
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

// ServeHTTP lets a request pass, or not.
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
	if t.Late && !watch { // it takes effect, and nobody is told
		p.upstream.ServeHTTP(discarded{http.Header{}}, r)
	}
	t.answer(w, watch)
}

// pass passes a request on. One that is slow goes on with the others when the trouble is over.
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

// discarded is an answer that nobody gets.
type discarded struct{ header http.Header }

func (d discarded) Header() http.Header       { return d.header }
func (discarded) Write(b []byte) (int, error) { return len(b), nil }
func (discarded) WriteHeader(int)             {}

// slow lets a while pass before each part of an answer.
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

// Unwrap is for http.ResponseController, which flushes.
func (s slow) Unwrap() http.ResponseWriter { return s.ResponseWriter }
