package streaming

import (
	"bufio"
	"net"
	"net/http"
	"time"
)

// patient closes the response's hijacked connection after it was idle for that long; 0: never.
type patient struct {
	http.ResponseWriter
	idle time.Duration
}

// Unwrap serves http.ResponseController.
func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// Flush serves callers that do not use http.ResponseController.
func (p *patient) Flush() { _ = http.NewResponseController(p.ResponseWriter).Flush() }

// Hijack implements http.Hijacker.
func (p *patient) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(p.ResponseWriter).Hijack()
	if err != nil || p.idle <= 0 {
		return c, rw, err
	}
	wrapped := &watched{Conn: c, idle: p.idle}
	wrapped.timer = time.AfterFunc(p.idle, func() { _ = c.Close() })
	return wrapped, rw, nil
}

// watched is a connection that its timer closes; all traffic resets the timer.
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
