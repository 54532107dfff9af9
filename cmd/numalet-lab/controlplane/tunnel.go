package controlplane

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// tunnel connects the API server to its nodes (its egress selector), and metrics-server: an HTTP proxy
// for CONNECT, on a unix socket or a port of loopback. Nodes on this machine register with one of its addresses, since a loopback address
// is refused, but listen on loopback, where the tunnel connects.
type tunnel struct {
	listener net.Listener
	ctx      context.Context
	cancel   context.CancelFunc
	open     sync.WaitGroup
}

// greeting bounds the time until the API server names the target.
const greeting = time.Minute

// openTunnel listens on the address until stop.
func openTunnel(network, address string) (t *tunnel, err error) {
	t = &tunnel{}
	if t.listener, err = net.Listen(network, address); err != nil {
		return nil, err
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.open.Go(t.accept)
	return t, nil
}

// stop also ends the connections in the tunnel.
func (t *tunnel) stop() {
	t.cancel()
	t.listener.Close()
	t.open.Wait()
}

func (t *tunnel) accept() {
	for {
		from, err := t.listener.Accept()
		if err != nil {
			return // stop has closed the listener
		}
		t.open.Go(func() {
			defer from.Close()
			if err := t.serve(from); err != nil {
				fmt.Fprintf(from, "HTTP/1.1 502 Bad Gateway\r\n\r\n%s\n", err)
			}
		})
	}
}

// serve connects one client to the target that it names. The client gets the error.
func (t *tunnel) serve(from net.Conn) error {
	if err := from.SetDeadline(time.Now().Add(greeting)); err != nil {
		return err
	}
	sent := bufio.NewReader(from)
	request, err := http.ReadRequest(sent)
	if err != nil {
		return err
	}
	if request.Method != http.MethodConnect {
		return fmt.Errorf("method %s: it takes CONNECT only", request.Method)
	}
	address, err := onLoopback(request.Host)
	if err != nil {
		return err
	}
	to, err := (&net.Dialer{}).DialContext(t.ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer to.Close()
	if err := from.SetDeadline(time.Time{}); err != nil {
		return err
	}
	if _, err := io.WriteString(from, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return err
	}
	t.join(from, sent, to)
	return nil
}

// join copies in both directions until both sides or the tunnel have ended.
func (t *tunnel) join(from net.Conn, sent io.Reader, to net.Conn) {
	ended := context.AfterFunc(t.ctx, func() {
		from.Close()
		to.Close()
	})
	defer ended()
	var back sync.WaitGroup
	back.Go(func() { pour(from, to) })
	pour(to, sent)
	back.Wait()
}

// pour copies until the end of from, and closes the writing side of to.
func pour(to net.Conn, from io.Reader) {
	_, err := io.Copy(to, from)
	half, ok := to.(interface{ CloseWrite() error })
	if err != nil || !ok || half.CloseWrite() != nil {
		to.Close()
	}
}

// onLoopback returns the address to dial for host:port: on loopback if the host is an address of
// this machine.
func onLoopback(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("list the host's addresses: %w", err)
	}
	ip := net.ParseIP(host)
	if slices.ContainsFunc(own, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(ip)
	}) {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}
