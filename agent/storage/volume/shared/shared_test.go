package shared

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// pod uses a thing.
type pod string

func (p pod) PodUID() types.UID { return types.UID(p) }

type entry struct {
	Uses[pod, bool]
	had bool
}

func (e *entry) Had() bool { return e.had }

// node has things, by name, and takes them back unless that fails.
type node struct {
	*Book[string, pod, bool, *entry]
	fails bool
	meant func() // happens while a thing is taken back; nil: nothing
	log   []string
}

func start(t *testing.T) *node {
	n := &node{}
	n.Book = New[string, pod, bool](Ends[string]{
		Name: func(k string) string { return k },
		TakeBack: func(_ context.Context, k string) error {
			n.log = append(n.log, "take back "+k)
			if n.meant != nil {
				n.meant()
			}
			if n.fails {
				return errors.New("busy")
			}
			n.Change(k, func(e *entry) { e.had = false })
			return nil
		},
		Failed: func(_ context.Context, _ string, _ error, pause time.Duration) time.Duration {
			n.log = append(n.log, "pause "+pause.String())
			return pause
		},
		Used: func() { n.log = append(n.log, "used") },
	}, func() *entry { return &entry{} })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); n.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return n
}

func (n *node) want(k string, p pod) { n.Change(k, func(e *entry) { e.Users[p], e.had = true, true }) }

func (n *node) leave(k string, p pod) {
	n.Change(k, func(e *entry) { delete(e.Users, p) })
	n.EndUnused(k)
}

func (n *node) expect(t *testing.T, what, want string) {
	t.Helper()
	synctest.Wait()
	if got := strings.Join(n.log, ", "); got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
	n.log = nil
}

// The last pod that leaves has a thing taken back, until that succeeds; then nothing is known of it.
func TestTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t)
		n.want("a", "p")
		n.want("a", "q")
		n.leave("a", "p")
		n.expect(t, "one of two leaves", "")
		n.fails = true
		n.leave("a", "q")
		n.expect(t, "the last leaves", "take back a, pause 500ms")
		n.leave("a", "q")
		n.expect(t, "it leaves again", "")
		time.Sleep(500 * time.Millisecond)
		n.expect(t, "after the pause", "take back a, pause 1s")
		n.fails = false
		n.Hasten()
		n.expect(t, "hastened", "take back a, used")
		n.Each(func(k string, _ *entry) { t.Errorf("%s is remembered", k) })
		n.leave("b", "p")
		n.expect(t, "of what the node never had", "used")
	})
}

// A pod that comes while a thing is taken back ends that, and the thing is taken back again after it.
func TestUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, fails := range []bool{true, false} {
			n := start(t)
			n.want("a", "p")
			n.fails, n.meant = fails, func() { n.Change("a", func(e *entry) { e.Users["q"] = true }) }
			n.leave("a", "p")
			n.expect(t, "used again", "take back a, used")
			n.fails, n.meant = false, nil
			if of := n.UsedBy("q"); of["q"] != "a" {
				t.Errorf("it uses %v", of)
			}
			n.want("a", "q")
			n.leave("a", "q")
			n.expect(t, "left again", "take back a, used")
		}
	})
}

// Who works on a thing keeps it from being taken back; what is used by then is not.
func TestLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t)
		done, err := n.Take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		n.want("a", "p")
		n.leave("a", "p")
		n.expect(t, "somebody works on it", "")
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.Take(short, "a"); err == nil || err.Error() != "a is busy: "+short.Err().Error() {
			t.Errorf("a second turn: %v", err)
		}
		n.want("a", "q")
		done()
		n.expect(t, "it is used", "used")
		n.leave("a", "q")
		n.expect(t, "it is not used", "take back a, used")
	})
}

// What an earlier run left unused is taken back from the start.
func TestLeftOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t)
		n.Change("a", func(e *entry) { e.had = true })
		n.want("b", "p")
		n.EndAllUnused()
		n.expect(t, "left over", "take back a, used")
		if pods := n.Pods(func(string, *entry, bool) bool { return true }); len(pods) != 1 || pods[0] != "p" {
			t.Errorf("used by %v", pods)
		}
	})
}
