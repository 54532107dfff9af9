package endings

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/pods/pod"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/internal/podtest"
)

func always(types.UID) bool { return true }

// run is one run of the agent, which tells ends.
type run struct {
	*Endings
	t      *testing.T
	cancel context.CancelFunc
	ended  chan error
	mu     sync.Mutex
	ends   []string
}

func begin(t *testing.T, root, boot string, known func(types.UID) bool) *run {
	t.Helper()
	r := &run{t: t, ended: make(chan error, 1)}
	var err error
	r.Endings, err = Open(root, boot, func(uid types.UID, why pod.Why, grace time.Duration) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ends = append(r.ends, fmt.Sprintf("%s %s in %v", uid, why.Message, grace))
	})
	if err != nil && !errors.Is(err, files.ErrUnusable) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel = cancel
	go func() { r.ended <- r.Work(ctx, known) }()
	return r
}

// kill ends the run once all that was proposed is told, and returns what was told.
func (r *run) kill() string {
	synctest.Wait()
	r.cancel()
	if err := <-r.ended; err != nil {
		r.t.Error(err)
	}
	return r.told()
}

func (r *run) told() string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.ends = nil }()
	return strings.Join(r.ends, "; ")
}

// pendings says what the run ends of pods that are named so.
func (r *run) pendings(names ...string) string {
	var out []string
	for _, name := range names {
		if why, grace, ok := r.PendingKill(podtest.New(name)); ok {
			out = append(out, fmt.Sprintf("%s %s in %v", name, why.Message, grace))
		}
	}
	return strings.Join(out, "; ")
}

func because(uid types.UID, message string, grace time.Duration) Ending {
	return Ending{UID: uid, Why: pod.Why{Reason: "Why", Message: message}, Grace: grace}
}

// TestEndings: a story is of runs of the agent. In each, what is pending is read first, and then pods end: of the
// first reason in the shortest of their grace periods.
func TestEndings(t *testing.T) {
	short := func(uid types.UID, grace time.Duration) Ending {
		return Ending{UID: uid, Why: pod.Why{Reason: "Evicted", Message: "short"}, Grace: grace, Short: "memory"}
	}
	down := func(uid types.UID, scope Scope) Ending {
		return Ending{UID: uid, Why: pod.Why{Reason: "Down", Message: "down"}, Grace: 10 * time.Second, Scope: scope}
	}
	type life struct {
		boot    string
		ends    []Ending
		over    []types.UID
		unknown string // a pod
		pending string // at the beginning
		told    string
	}
	for name, lives := range map[string][]life{
		"goes on": {
			{ends: []Ending{short("a", 20*time.Second)}, told: "a short in 20s"},
			{pending: "a short in 16s"}, {pending: "a short in 12s"}, {boot: "b", pending: "a short in 8s"},
			{pending: "a short in 4s"}, {pending: "a short in 1s"}, {pending: "a short in 1s"},
		},
		"by its own grace period": {
			{ends: []Ending{because("a", "late", 0)}, told: "a late in 0s"}, {pending: "a late in 0s"},
		},
		"the first reason stays, and the shortest grace period": {
			{ends: []Ending{short("a", 20*time.Second), down("a", Boot), because("b", "late", 0), down("b", Run)},
				told: "a short in 20s; a down in 10s; b late in 0s; b down in 10s"},
			{boot: "b", pending: "a short in 6s; b late in 6s"},
		},
		"a shorter one comes later": {
			{ends: []Ending{short("a", 40*time.Second)}, told: "a short in 40s"},
			{ends: []Ending{short("a", time.Hour), down("a", Boot)}, pending: "a short in 36s",
				told: "a short in 1h0m0s; a down in 10s"},
			{pending: "a short in 6s"},
		},
		"counts in one boot, or in one run": {
			{ends: []Ending{down("a", Boot), down("b", Run)}, told: "a down in 10s; b down in 10s"},
			{pending: "a down in 6s"}, {boot: "b"}, {},
		},
		"over": {
			{ends: []Ending{short("a", time.Hour), short("b", time.Hour)}, over: []types.UID{"a", "c"},
				told: "a short in 1h0m0s; b short in 1h0m0s"},
			{pending: "b short in 59m56s", over: []types.UID{"b"}}, {},
		},
		"over before it ends again": {
			{ends: []Ending{short("a", time.Hour)}, told: "a short in 1h0m0s"},
			{pending: "a short in 59m56s", over: []types.UID{"a"}},
			{ends: []Ending{because("a", "late", 0)}, told: "a late in 0s"}, {pending: "a late in 0s"},
		},
		"unknown": {
			{ends: []Ending{short("a", time.Hour)}, told: "a short in 1h0m0s"},
			{pending: "a short in 59m56s", unknown: "a"}, // not written for that alone
			{pending: "a short in 59m52s", unknown: "a", ends: []Ending{short("b", time.Hour)}, told: "b short in 1h0m0s"},
			{pending: "b short in 59m56s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				root, boot := t.TempDir(), "a"
				for i, l := range lives {
					if l.boot != "" {
						boot = l.boot
					}
					r := begin(t, root, boot, func(uid types.UID) bool { return string(uid) != l.unknown })
					if got := r.pendings("a", "b", "c"); got != l.pending {
						t.Errorf("run %d begins with %q, want %q", i, got, l.pending)
					}
					for _, one := range l.ends {
						r.End(one)
					}
					for _, uid := range l.over {
						r.Over(uid)
						if got := r.pendings(string(uid)); got != "" {
							t.Errorf("run %d: over is %s", i, got)
						}
					}
					time.Sleep(4 * time.Second)
					if got := r.kill(); got != l.told {
						t.Errorf("run %d ends %q, want %q", i, got, l.told)
					}
				}
			})
		})
	}
}

// TestBatch: of what comes together each is taken in order, so that a pod which begins again may end again.
func TestBatch(t *testing.T) {
	r, now := record{}, time.Now()
	over := news{Ending: Ending{UID: "a"}, over: true}
	if !r.merge([]news{{Ending: because("a", "first", 0)}, over, {Ending: because("a", "second", 0)}}, now) {
		t.Error("nothing has changed")
	}
	if len(r.all) != 1 || r.all[0].Message != "second" {
		t.Errorf("there are %+v", r.all)
	}
	if r.merge([]news{{Ending: because("a", "third", 0)}}, now) {
		t.Error("the same ending is a change")
	}
	for _, c := range []struct {
		grace   time.Duration
		changes bool
	}{{time.Minute, true}, {time.Hour, false}, {time.Minute, false}, {time.Second, true}} {
		if r.merge([]news{{Ending: because("a", "again", c.grace)}}, now) != c.changes {
			t.Errorf("within %v is a change: %t", c.grace, !c.changes)
		}
	}
	if !r.merge([]news{over}, now) || len(r.all) > 0 || r.merge([]news{over}, now) {
		t.Errorf("over, there are %+v", r.all)
	}
}

// Nothing of an ending is lost: its reason, whether the pod exceeded a limit of its own, and a message that is
// not too long. A pod that has ended is not ended.
func TestPendingKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := t.TempDir()
		r := begin(t, root, "boot", always)
		want := pod.Why{Reason: "Evicted", Message: "low on memory", OwnLimit: true}
		r.End(Ending{UID: "a", Why: want})
		r.End(because("b", strings.Repeat("x", maxMessage-1)+"é", 0)) // which is two bytes
		r.kill()
		r = begin(t, root, "boot", always)
		if why, grace, ok := r.PendingKill(podtest.New("a")); why != want || grace != 0 || !ok {
			t.Errorf("a: %+v in %v, %t", why, grace, ok)
		}
		if why, _, _ := r.PendingKill(podtest.New("b")); why.Message != strings.Repeat("x", maxMessage-1) {
			t.Errorf("b has a message of %d bytes", len(why.Message))
		}
		for _, phase := range []v1.PodPhase{v1.PodFailed, v1.PodSucceeded} {
			if _, _, ok := r.PendingKill(podtest.New("a", podtest.Phase(phase))); ok {
				t.Errorf("a pod that is %s ends", phase)
			}
		}
		r.kill()
	})
}

// TestLastEviction: the newest one counts whose pod has something left; other ends are none.
func TestLastEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := t.TempDir()
		r := begin(t, root, "boot", always)
		for _, uid := range []types.UID{"a", "b", "c"} {
			r.End(Ending{UID: uid, Short: "of " + string(uid)})
		}
		r.End(Ending{UID: "d"})
		if _, _, ok := r.LastEviction(always); ok {
			t.Error("an eviction of this run is one of an earlier run")
		}
		r.kill()
		r = begin(t, root, "boot", always)
		uid, short, ok := r.LastEviction(func(uid types.UID) bool { return uid != "c" })
		if uid != "b" || short != "of b" || !ok {
			t.Errorf("the last eviction is of %q, %q, %t", uid, short, ok)
		}
		r.kill()
	})
}

// What another record knows counts too, but not against the file's own.
func TestRecall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := t.TempDir()
		r := begin(t, root, "boot", always)
		r.End(because("a", "own", 0))
		r.kill()
		e, err := Open(root, "boot", nil)
		if err != nil {
			t.Fatal(err)
		}
		e.Recall("a", pod.Why{Message: "other"}, time.Now().Add(time.Minute))
		e.Recall("b", pod.Why{Message: "other"}, time.Now().Add(time.Minute))
		r.Endings = e
		if got, want := r.pendings("a", "b"), "a own in 0s; b other in 1m0s"; got != want {
			t.Errorf("pending is %q, want %q", got, want)
		}
	})
}

// An ending is on the disk before it is told, and told all the same if it cannot be written, or after a second
// if the disk hangs. It is written with the next one.
func TestWrittenFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := t.TempDir()
		path := filepath.Join(root, File)
		r := begin(t, root, "boot", always)
		before := func(e *Endings) func(types.UID, pod.Why, time.Duration) {
			tell := e.tell
			return func(uid types.UID, why pod.Why, grace time.Duration) {
				if raw, err := os.ReadFile(path); err != nil || !strings.Contains(string(raw), string(uid)) {
					why.Message += " unwritten"
				}
				tell(uid, why, grace)
			}
		}
		r.tell = before(r.Endings)
		r.End(because("a", "first", 0))
		if got := r.told(); got != "a first in 0s" {
			t.Errorf("told is %q", got)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(path, 0o755); err != nil { // in the way of the file
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "x"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		r.End(because("b", "second", 0))
		if got := r.told(); got != "b second unwritten in 0s" {
			t.Errorf("told is %q", got)
		}
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		r.Over("none")
		r.kill()
		r = begin(t, root, "boot", always)
		if got := r.pendings("a", "b"); got != "a first in 0s; b second in 0s" {
			t.Errorf("the next run has %q", got)
		}
		r.kill()
	})
	synctest.Test(t, func(t *testing.T) {
		hangs, over := true, make(chan struct{})
		r := begin(t, t.TempDir(), "boot", func(types.UID) bool {
			if hangs { // as the disk may
				hangs = false
				<-over
			}
			return true
		})
		began := time.Now()
		r.End(because("a", "hung", 0))
		time.Sleep(writtenWithin - time.Nanosecond)
		if got := r.told(); got != "" {
			t.Errorf("after %v told is %q", time.Since(began), got)
		}
		time.Sleep(time.Nanosecond)
		if got := r.told(); got != "a hung in 0s" {
			t.Errorf("after %v told is %q", time.Since(began), got)
		}
		close(over)
		r.kill()
	})
}

// A file that is broken is moved aside, and nothing is pending. Of too many endings the oldest go.
func TestFile(t *testing.T) {
	for _, broken := range []string{"", "{", `{"uid": 1}`, `[{"uid": 1}]`} {
		root := t.TempDir()
		path := filepath.Join(root, File)
		if err := os.WriteFile(path, []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		e, err := Open(root, "boot", nil)
		if !errors.Is(err, files.ErrUnusable) || len(e.pending) > 0 {
			t.Errorf("of %q there is %v, %v", broken, e, err)
		}
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("a file with %q is still there: %v", broken, err)
		}
	}
	root := t.TempDir()
	var all []news
	for i := range mostKept + 1 {
		all = append(all, news{Ending: because(types.UID(fmt.Sprint(i)), strings.Repeat("x", 2*maxMessage), time.Minute)})
	}
	r := record{path: filepath.Join(root, File)}
	r.take(t.Context(), all, always)
	e, err := Open(root, "boot", nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(e.pending) != mostKept || e.earlier[0].UID != "1" {
		t.Errorf("%d are kept from %s on", len(e.pending), e.earlier[0].UID)
	}
}
