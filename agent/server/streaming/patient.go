package streaming

import (
	"bufio"
	"net"
	"net/http"
	"time"
)

// patient is a response whose connection, once it was taken over, is closed when nothing has gone
// over it for a while; 0: it never is.
type patient struct {
	http.ResponseWriter
	idle time.Duration
}

// Unwrap is for http.ResponseController.
func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// Flush is for those who do not know http.ResponseController.
func (p *patient) Flush() { _ = http.NewResponseController(p.ResponseWriter).Flush() }

// Hijack is http.Hijacker's.
func (p *patient) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(p.ResponseWriter).Hijack()
	if err != nil || p.idle <= 0 {
		return c, rw, err
	}
	wrapped := &watched{Conn: c, idle: p.idle}
	wrapped.timer = time.AfterFunc(p.idle, func() { _ = c.Close() })
	return wrapped, rw, nil
}

// watched is a connection that is closed when its timer fires; what goes over it sets it back.
type watched struct {
	net.Conn
	idle  time.Duration
	timer *time.Timer
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	w.moved(n)
	return n, err
}

func (w *watched) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	w.moved(n)
	return n, err
}

func (w *watched) moved(n int) {
	if n > 0 {
		w.timer.Reset(w.idle)
	}
}

func (w *watched) Close() error {
	w.timer.Stop()
	return w.Conn.Close()
}
