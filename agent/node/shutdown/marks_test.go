package shutdown

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/podtest"
)

func always(types.UID) bool { return true }

// pendingKills names the pods of two that the next run of the agent ends.
func pendingKills(t *testing.T, dir, boot string) (out string) {
	t.Helper()
	m, err := OpenMarks(dir, boot)
	if err != nil && !errors.Is(err, files.ErrUnusable) {
		t.Fatal(err)
	}
	for i := range 3 {
		name := fmt.Sprint("pod", i)
		if grace, ok := m.PendingKill(podtest.New(name)); ok {
			out += fmt.Sprintf("%s within %v, ", name, grace.Round(10*time.Second))
		}
	}
	return out
}

// Before a pod is told to end it is marked on the disk, but a static one is not. The next run of the agent
// ends it, unless the machine has booted or the API server knows that it has ended.
func TestMarked(t *testing.T) {
	b := system(t)
	n := start(t, b, two...)
	n.inhibits(1)
	n.cling()
	n.mu.Lock()
	static := podtest.New("pod2", podtest.Source("file"))
	n.pods["pod2"] = static
	var marked []string
	n.ends = func(p *v1.Pod) {
		raw, err := os.ReadFile(filepath.Join(n.dir, MarksFile))
		marked = append(marked, fmt.Sprint(p.Name, " ", err == nil && strings.Contains(string(raw), p.Name)))
	}
	n.mu.Unlock()
	b.Prepare(true)
	reported := func(pods int) {
		t.Helper()
		n.eventually(fmt.Sprint(pods, " pods are told"), func() bool {
			n.mu.Lock()
			defer n.mu.Unlock()
			return len(marked) == pods
		})
	}
	reported(2)
	if want := "pod0 within 20s, "; pendingKills(t, n.dir, "boot") != want {
		t.Errorf("the next run ends %s; want %s", pendingKills(t, n.dir, "boot"), want)
	}
	n.mu.Lock()
	delete(n.pods, "pod0")
	delete(n.pods, "pod2")
	n.mu.Unlock()
	await.Wake(n.changed)
	reported(3)
	n.gone()
	n.inhibits(0)
	slices.Sort(marked)
	if got := strings.Join(marked, ", "); got != "pod0 true, pod1 true, pod2 false" {
		t.Errorf("when the pods were told to end, marked are %s", got)
	}
	if want := "pod0 within 20s, pod1 within 10s, "; pendingKills(t, n.dir, "boot") != want {
		t.Errorf("the next run ends %s; want %s", pendingKills(t, n.dir, "boot"), want)
	}
	if got := pendingKills(t, n.dir, "another"); got != "" {
		t.Errorf("after the boot %s ends", got)
	}
	m, err := OpenMarks(n.dir, "boot")
	if err != nil {
		t.Fatal(err)
	}
	for _, phase := range []v1.PodPhase{v1.PodFailed, v1.PodSucceeded} {
		if _, ok := m.PendingKill(podtest.New("pod0", podtest.Phase(phase))); ok {
			t.Errorf("a pod that is %s ends", phase)
		}
	}
}

// Marks of pods that are gone go, a pod has one, and of too many the oldest go. Marks of another boot go
// with the first of this one.
func TestMarksAreForgotten(t *testing.T) {
	dir := t.TempDir()
	add := func(boot string, known func(types.UID) bool, all ...mark) {
		t.Helper()
		m, err := OpenMarks(dir, boot)
		if err == nil {
			err = m.add(all, known)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	add("one", always, mark{"pod0", now}, mark{"pod1", now})
	add("one", func(uid types.UID) bool { return uid != "pod0" }, mark{"pod1", now.Add(time.Minute)})
	if got := pendingKills(t, dir, "one"); got != "pod1 within 1m0s, " {
		t.Errorf("the next run ends %s", got)
	}
	add("two", always, mark{"pod2", now})
	if got := pendingKills(t, dir, "two"); got != "pod2 within 0s, " { // a second, rounded
		t.Errorf("in the next boot %s ends", got)
	}
	if got := pendingKills(t, dir, "one"); got != "" {
		t.Errorf("marks of two boots: %s ends", got)
	}
	var many []mark
	for i := range mostMarked + 1 {
		many = append(many, mark{types.UID(fmt.Sprint("00000000-0000-4000-8000-", i)), now})
	}
	add("two", always, many...)
	m, err := OpenMarks(dir, "two")
	if err != nil {
		t.Fatal(err)
	}
	if first := m.before[0].UID; len(m.before) != mostMarked || first != many[1].UID {
		t.Errorf("%d are marked from %s on", len(m.before), first)
	}
	if err := os.WriteFile(filepath.Join(dir, MarksFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := pendingKills(t, dir, "two"); got != "" {
		t.Errorf("of a file that cannot be read it ends %s", got)
	}
}

// A disk that cannot be written, or that hangs, does not keep pods from ending.
func TestMarksCannotBeWritten(t *testing.T) {
	b := system(t)
	n := start(t, b, two...)
	n.inhibits(1)
	if err := os.Mkdir(filepath.Join(n.dir, MarksFile), 0o755); err != nil { // in the way of the file
		t.Fatal(err)
	}
	b.Prepare(true)
	n.says1(began + "; pod0 within 20s; pod1 within 10s")
	synctest.Test(t, func(t *testing.T) {
		m := &Manager{entries: mailbox.New[entry]()} // whose recorder never gets there
		before := time.Now()
		if m.mark(t.Context(), []mark{{UID: "pod0"}}); time.Since(before) != markWithin {
			t.Errorf("the end of a pod waits for %v", time.Since(before))
		}
		m = &Manager{entries: mailbox.New[entry]()}
		before = time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = m.entries.Each(ctx, func(e entry) { close(e.written) }) }()
		if m.mark(ctx, []mark{{UID: "pod0"}}); time.Since(before) > 0 {
			t.Errorf("marked at once, the end of a pod waits for %v", time.Since(before))
		}
		cancel()
	})
}

// Marks that cannot be read are moved aside, and nobody is marked.
func TestBrokenMarks(t *testing.T) {
	for _, broken := range []string{"{", `{"bootID": 1}`, `[]`} {
		dir := t.TempDir()
		path := filepath.Join(dir, MarksFile)
		if err := os.WriteFile(path, []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := pendingKills(t, dir, "boot"); got != "" {
			t.Errorf("with %s in the file %s ends", broken, got)
		}
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("a file with %s is still there: %v", broken, err)
		}
	}
}
