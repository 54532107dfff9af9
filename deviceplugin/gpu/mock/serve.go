package mock

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/numalet/numalet/deviceplugin/socket"
	"github.com/numalet/numalet/internal/bounded"
	"github.com/numalet/numalet/internal/files"
)

const (
	maxClients = 8
	maxLine    = 4096
	idle       = time.Minute // how long a silent client is kept
)

// Serve obeys orders on a unix socket until ctx is done: one per line, answered by "ok" or by the
// error.
func (r *Rig) Serve(ctx context.Context, path string) error {
	if err := files.Remove(path); err != nil { // an earlier process may have left it
		return fmt.Errorf("listen for orders: %w", err)
	}
	listener, err := socket.ListenAs(path, 0o600)
	if err != nil {
		return fmt.Errorf("listen for orders: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	var group errgroup.Group
	clients := bounded.Listener(listener, maxClients)
	for {
		conn, err := clients.Accept()
		if ctx.Err() != nil {
			return group.Wait()
		}
		if err != nil {
			return err
		}
		group.Go(func() error {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			r.obey(conn)
			return nil
		})
	}
}

// obey returns when the client has gone or was silent for too long.
func (r *Rig) obey(conn net.Conn) {
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, maxLine)
	for {
		_ = conn.SetDeadline(time.Now().Add(idle))
		if !lines.Scan() {
			return
		}
		answer := "ok"
		if err := r.Do(lines.Text()); err != nil {
			answer = err.Error()
		}
		if _, err := fmt.Fprintln(conn, answer); err != nil {
			return
		}
	}
}
