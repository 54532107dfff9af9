package neighbours

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gofrs/flock"
)

// An agent counts as running if its root directory is locked; this is reported once each time.
func TestNeighbours(t *testing.T) {
	dir := t.TempDir()
	own, other := filepath.Join(dir, "own"), filepath.Join(dir, "other")
	for _, root := range []string{own, other} {
		if err := os.Mkdir(root, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(own, link); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var reported []string
		n, err := New(Config{Root: link, Tell: func(m string) { reported = append(reported, m) }})
		if err != nil {
			t.Fatal(err)
		}
		expect := func(when string, want bool, tellings int) {
			t.Helper()
			for range 3 {
				if got := n.Has(other); got != want {
					t.Errorf("%s: it runs: %t", when, got)
				}
			}
			if len(reported) != tellings {
				t.Errorf("%s: told %q", when, reported)
			}
			if n.Run() != want {
				t.Errorf("%s: anybody runs: %t", when, !want)
			}
			time.Sleep(fresh)
		}
		mine := hold(t, own)
		defer mine.Unlock()
		for _, root := range []string{"", own, filepath.Join(dir, "none")} {
			if n.Has(root) {
				t.Errorf("%q is another agent that runs", root)
			}
		}
		if n.Own() != own {
			t.Errorf("its own is %s", n.Own())
		}
		expect("before it starts", false, 0)
		lock := hold(t, other)
		expect("while it runs", true, 1)
		expect("later", true, 1)
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
		expect("after its end", false, 1)
		lock = hold(t, other)
		expect("again", true, 2)
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(reported[0], other) {
			t.Errorf("told %q", reported[0])
		}
	})
}

// hold takes the lock that an agent holds on its root directory.
func hold(t *testing.T, root string) *flock.Flock {
	t.Helper()
	lock := flock.New(root, flock.SetFlag(os.O_RDONLY))
	if held, err := lock.TryLock(); !held || err != nil {
		t.Fatal(held, err)
	}
	return lock
}
