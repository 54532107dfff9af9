package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// One agent at a time works in a root directory, and what a dead one left is in nobody's way.
func TestTakeRoot(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	release, err := takeRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := takeRoot(root); err == nil || !strings.Contains(err.Error(), root) ||
		!strings.Contains(err.Error(), "another numalet") {
		t.Errorf("a second agent: %v", err)
	}
	release()

	for _, dir := range []string{"device-plugins", "pod-resources"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o750); err != nil {
			t.Fatal(err)
		}
		socket := filepath.Join(root, dir, "kubelet.sock")
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		if _, err := takeRoot(root); err == nil || !strings.Contains(err.Error(), socket) {
			t.Errorf("beside a kubelet: %v", err)
		}
		_ = l.Close() // killed: the socket stays
		release, err := takeRoot(root)
		if err != nil {
			t.Fatalf("after a kubelet that was killed: %v", err)
		}
		release()
	}

	file := filepath.Join(root, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := takeRoot(file); err == nil || !strings.Contains(err.Error(), "--root-dir") {
		t.Errorf("a file for a root directory: %v", err)
	}
}
