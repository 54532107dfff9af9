package test

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/numalet/numalet/test/harness"
)

// An agent that is told to stop while it waits for the container runtime stops without an error.
// The runtime here accepts calls and never answers; if there were none, the agent would end with an
// error.
func TestStoppedWhileConnecting(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	socket := filepath.Join(n.Dir, "silent.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	called := make(chan bool, 1)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			select {
			case called <- true:
			default:
			}
		}
	}()
	n.Settings["containerRuntimeEndpoint"] = "unix://" + socket
	n.StartOnly()
	<-called
	if err := n.Stop(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, n.LogTail(20))
	}
	if log := n.LogTail(100); strings.Contains(log, "numalet: ") {
		t.Errorf("it complains:\n%s", log)
	}
}
