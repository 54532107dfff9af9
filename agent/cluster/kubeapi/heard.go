package kubeapi

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// heard is a connection that notes when it last received something. When it is closed after being
// silent for so long that a ping must have gone unanswered, it calls lost.
type heard struct {
	net.Conn
	// wrote and read are the times of the last sending and receiving, since the connection was
	// made.
	made        time.Time
	wrote, read atomic.Int64
	closed      sync.Once
	lost        func(net.Conn, time.Duration)
}

func newHeard(c net.Conn, lost func(net.Conn, time.Duration)) *heard {
	return &heard{Conn: c, made: time.Now(), lost: lost}
}

// Read implements net.Conn.
func (h *heard) Read(b []byte) (int, error) {
	n, err := h.Conn.Read(b)
	if n > 0 {
		h.read.Store(int64(time.Since(h.made)))
	}
	return n, err
}

// Write implements net.Conn.
func (h *heard) Write(b []byte) (int, error) {
	h.wrote.Store(int64(time.Since(h.made)))
	return h.Conn.Write(b)
}

// Close implements net.Conn.
func (h *heard) Close() error {
	h.closed.Do(func() {
		silent := time.Since(h.made) - time.Duration(h.read.Load())
		if h.wrote.Load() > h.read.Load() && silent >= quiet+pingTimeout {
			h.lost(h.Conn, silent)
		}
	})
	return h.Conn.Close()
}

// lost reports a connection that was given up. All that it carried continues on another one.
func (c *Client) lost(conn net.Conn, silent time.Duration) {
	klog.Background().Info("A connection to the API server was given up: nothing came over it any "+
		"more, not even the answer to a ping; another one is made", "local", conn.LocalAddr(),
		"remote", conn.RemoteAddr(), "silent", silent.Round(time.Second))
	if c.tell != nil {
		c.tell(v1.EventTypeWarning, ReasonLost, "A connection to the API server was given up: "+
			"nothing came over it any more, not even the answer to a ping. Another one is made. If "+
			"this happens often, look for what drops connections on the way.")
	}
}
