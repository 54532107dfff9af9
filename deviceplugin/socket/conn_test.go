package socket

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/numalet/numalet/test/scratch"
)

// A connection that was hung up closes with its last call, and takes no other.
func TestHangUp(t *testing.T) {
	c, err := PluginClient("/absent.sock", time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	var entered sync.WaitGroup
	for range 8 {
		entered.Go(func() {
			if !c.Enter() {
				t.Error("it takes no call")
			}
		})
	}
	entered.Wait()
	c.HangUp()
	if c.Enter() {
		t.Error("it takes a call after that")
	}
	for range 8 {
		if c.GetState() == connectivity.Shutdown {
			t.Fatal("it was closed under a call")
		}
		c.Leave()
	}
	if c.GetState() != connectivity.Shutdown {
		t.Error("it is open after its last call")
	}
	c.HangUp()
}

// DialError has what the last attempt to connect met.
func TestDialError(t *testing.T) {
	path := filepath.Join(scratch.Dir(t), "p.sock")
	c, err := PluginClient(path, time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.HangUp()
	if err := c.DialError(); err != nil {
		t.Errorf("before any attempt: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if c.Ready(ctx) || !errors.Is(c.DialError(), fs.ErrNotExist) {
		t.Errorf("without a socket: %v", c.DialError())
	}
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	defer server.Stop()
	go func() { _ = server.Serve(l) }() // until Stop
	if !c.Ready(t.Context()) {
		t.Error("it does not connect to a socket that came later")
	}
}
