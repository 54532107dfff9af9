package child

import (
	"path/filepath"
	"strings"
	"testing"
)

// A server that was ended can start again; Died shows the last words of one that ended by itself.
func TestStartEndAgain(t *testing.T) {
	s := &Server{Program: "/bin/sleep", Args: []string{"60"}, Log: filepath.Join(t.TempDir(), "log")}
	for _, end := range []func(){s.Stop, s.Kill} {
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		if err := s.Died(); err != nil {
			t.Errorf("it runs, and %v", err)
		}
		end()
		if err := s.Died(); err == nil || !strings.HasPrefix(err.Error(), "sleep exited; ") {
			t.Errorf("it was ended, and %v", err)
		}
	}
	s.Program, s.Args, s.Env = "/bin/sh", []string{"-c", "echo so says $WHO"}, []string{"WHO=me"}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	<-s.Exited()
	if err := s.Died(); err == nil || !strings.HasSuffix(err.Error(), "so says me") {
		t.Errorf("it has ended, and %v", err)
	}
	s.Memory, s.Args = 1<<30, []string{"-c",
		`until [ "$(ulimit -d)" = 1048576 ]; do :; done; echo limited to $GOMEMLIMIT`}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	<-s.Exited()
	if err := s.Died(); err == nil || !strings.HasSuffix(err.Error(), "limited to 805306368") {
		t.Errorf("it has ended, and %v", err)
	}
	s.Program = "/nonexistent"
	if err := s.Start(); err == nil || !strings.HasPrefix(err.Error(), "start nonexistent: ") {
		t.Errorf("what there is not was started: %v", err)
	}
}
