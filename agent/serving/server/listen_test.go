package server

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// Every listener waits for a port whose holder is about to end, such as a kubelet that was told to
// stop.
func TestPortOfOneWhoEnds(t *testing.T) {
	held, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	time.AfterFunc(500*time.Millisecond, func() { _ = held.Close() })
	l, err := listen(held.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "ours")
		}))
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); string(text) != "ours" {
		t.Errorf("%q answers, %v", text, err)
	}
}
