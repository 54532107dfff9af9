package eni

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseCount(t *testing.T) {
	for text, want := range map[string]string{
		"12\n": "12", " 0 ": "0", "": "0", "[]": "0", `["a", {"b": 1}]`: "2",
		"10.0.0.1\n10.0.0.2\n\n10.0.0.3": "3", "eni-1/": "1",
		"-1":            "the count is -1, want 0 to 100000",
		"100001":        "the count is 100001, want 0 to 100000",
		"<html></html>": `"<html></html>" is neither a number nor a list`,
		"[\n1,\n2\n":    `"[ 1, 2" is neither a number nor a list`,
		`{"error": 1}`:  `"{\"error\": 1}" is neither a number nor a list`,
	} {
		n, err := parseCount(text)
		got := fmt.Sprint(n)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// A count comes from each kind of source, and the error of a source contains its words.
func TestCountSources(t *testing.T) {
	metadata := http.NewServeMux()
	metadata.HandleFunc("PUT /token", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Meta-Token-TTL-Seconds") == "" {
			http.Error(w, "for how long?", http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, "secret\n")
	})
	metadata.HandleFunc("GET /latest/ips", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Meta-Token") != "secret" {
			http.Error(w, "no token", http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, "10.0.0.1\n10.0.0.2\n10.0.0.3\n")
	})
	server := httptest.NewServer(metadata)
	defer server.Close()
	with := Metadata{URL: server.URL + "/latest/", Token: server.URL + "/token",
		TokenHeader: "X-Meta-Token"}
	without := Metadata{URL: server.URL + "/latest"}
	file := filepath.Join(t.TempDir(), "count")
	if err := os.WriteFile(file, []byte("7"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		count    Count
		metadata Metadata
		want     string
	}{
		"metadata":      {Count{Metadata: "ips"}, with, "3"},
		"but the first": {Count{Metadata: "/ips", Less: 1}, with, "2"},
		"no token":      {Count{Metadata: "ips"}, without, "401 Unauthorized: no token"},
		"another path":  {Count{Metadata: "eips"}, with, "404 Not Found"},
		"file":          {Count{File: file}, Metadata{}, "7"},
		"no file":       {Count{File: file + "s"}, Metadata{}, "no such file"},
		"command":       {Count{Command: "seq 5"}, Metadata{}, "5"},
		"bad command":   {Count{Command: "echo no >&2; exit 3"}, Metadata{}, "exit status 3: no"},
		"endless":       {Count{Command: "cat /dev/zero"}, Metadata{}, "more than 4194304 bytes"},
	} {
		n, err := tt.count.ask(t.Context(), tt.metadata)
		if err == nil && fmt.Sprint(n) != tt.want ||
			err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %d, %v, want %s", name, n, err, tt.want)
		}
	}
}

// A command that does not end is killed at its deadline.
func TestCommandEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (Count{Command: "sleep 1000"}).ask(ctx, Metadata{}); err == nil {
		t.Error("a command that was cancelled gave a count")
	}
}
