package mock

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/numalet/numalet/test/scratch"
)

// Orders come over a socket, one per line, and each is answered.
func TestServe(t *testing.T) {
	r := open(t, "dgxh100")
	path := filepath.Join(scratch.Dir(t), "orders.sock")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, path) }()
	var conn net.Conn
	for deadline := time.Now().Add(30 * time.Second); conn == nil; time.Sleep(time.Millisecond) {
		var err error
		if conn, err = net.Dial("unix", path); err != nil && time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	for order, want := range map[string]string{"ecc 3 2": "ok\n", "ecc 9 2": "ecc: want a GPU"} {
		if _, err := fmt.Fprintln(conn, order); err != nil {
			t.Fatal(err)
		}
		if got, err := answers.ReadString('\n'); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, %v", order, got, err)
		}
	}
	if got := snapshot(t, r).GPUs[3].Reading.Uncorrected; got != 2 {
		t.Errorf("GPU 3 has %d errors", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("it ended with %v", err)
	}
}
