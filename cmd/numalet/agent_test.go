package main

import (
	"testing"

	"golang.org/x/sys/unix"
)

// If the host refuses the wanted number of file descriptors, the process gets as many as it may
// have.
func TestRaiseFiles(t *testing.T) {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	few := unix.Rlimit{Cur: before.Max / 2, Max: before.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &before) })
	has, err := raiseFiles(1 << 40) // more than fs.nr_open
	var now unix.Rlimit
	if getErr := unix.Getrlimit(unix.RLIMIT_NOFILE, &now); getErr != nil {
		t.Fatal(getErr)
	}
	if err == nil || has != before.Max || now.Cur != before.Max {
		t.Errorf("the process has %d, said %d, want %d (%v)", now.Cur, has, before.Max, err)
	}
}
