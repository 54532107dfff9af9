package faults

import (
	"net"
	"sync/atomic"
)

// holes is a listener whose connections can become black holes.
type holes struct{ net.Listener }

// Accept implements net.Listener.
func (h holes) Accept() (net.Conn, error) {
	c, err := h.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &hole{Conn: c}, nil
}

// hole is a connection that drops everything from either side once it is a black hole. It stays
// open, as if its packets were lost.
type hole struct {
	net.Conn
	nowhere atomic.Bool
}

// Read implements net.Conn.
func (h *hole) Read(b []byte) (int, error) {
	for {
		n, err := h.Conn.Read(b)
		if err != nil || !h.nowhere.Load() {
			return n, err
		}
	}
}

// Write implements net.Conn.
func (h *hole) Write(b []byte) (int, error) {
	if h.nowhere.Load() {
		return len(b), nil
	}
	return h.Conn.Write(b)
}

// Swallow turns all existing connections into black holes, silently on both sides, and returns how
// many. New connections work.
func (p *Proxy) Swallow() (count int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		if h, ok := under(c).(*hole); ok {
			h.nowhere.Store(true)
			count++
		}
	}
	return count
}
