package socket

import (
	"context"
	"errors"
	"io/fs"
	"os"
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

// Replaced tells a path with another socket from one with the same, or none.
func TestReplaced(t *testing.T) {
	path := filepath.Join(scratch.Dir(t), "p.sock")
	c, err := PluginClient(path, time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.HangUp()
	is := func(what string, want bool) {
		t.Helper()
		if got := c.Replaced(); got != want {
			t.Errorf("%s: replaced %v", what, got)
		}
	}
	listen := func() *grpc.Server {
		l, err := Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer()
		t.Cleanup(server.Stop)
		go func() { _ = server.Serve(l) }() // until Stop
		return server
	}
	is("before it was dialled", false)
	server := listen()
	is("before it was dialled, with a socket", false)
	if !c.Ready(t.Context()) {
		t.Fatal("it does not connect")
	}
	is("connected", false)
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	is("with other permissions", false)
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	is("without a socket", false)
	listen()
	is("with the next one's", true)
	server.Stop()
	c.WaitForStateChange(t.Context(), connectivity.Ready)
	if !c.Ready(t.Context()) {
		t.Fatal("it does not connect again")
	}
	is("connected to the next one", false)
}
