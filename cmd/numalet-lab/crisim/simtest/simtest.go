// Package simtest runs a simulated runtime for the duration of a test.
package simtest

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/test/scratch"
)

// Start serves cfg until the test ends, on a new socket if cfg.Listen is empty.
func Start(t testing.TB, cfg crisim.Config) *crisim.Server {
	t.Helper()
	if cfg.Listen == "" {
		cfg.Listen = "unix://" + Socket(t)
	}
	server, err := crisim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("simulated runtime: %v", err)
		}
	})
	return server
}

// Connect returns a client of the server that is closed when the test ends.
func Connect(t testing.TB, server *crisim.Server) *cri.Client {
	t.Helper()
	client, err := cri.Connect(t.Context(), cri.Config{RuntimeEndpoint: server.Endpoint()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Errorf("close client: %v", err)
		}
	})
	return client
}

// Socket returns a path short enough for a unix socket, in a directory removed with the test.
func Socket(t testing.TB) string {
	t.Helper()
	return filepath.Join(scratch.Dir(t), "s")
}
