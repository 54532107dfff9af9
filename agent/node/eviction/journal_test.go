package eviction

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/internal/podtest"
)

func openJournal(t *testing.T, root string) *Journal {
	t.Helper()
	j, err := OpenJournal(root)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// TestJournal: the next run of the agent knows an eviction until its pod is gone, and what is left of
// its grace period.
func TestJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := t.TempDir()
		j := openJournal(t, root)
		all := func(types.UID) bool { return true }
		add := func(uid types.UID, message string, known func(types.UID) bool) {
			t.Helper()
			e := Eviction{Pod: podtest.New(string(uid)), Grace: 10 * time.Second, Words: Words{Message: message},
				Signal: NodeFSAvailable, OwnLimit: uid == "a"}
			if err := j.add(e, known); err != nil {
				t.Fatal(err)
			}
		}
		add("a", "low on memory", all)
		add("b", strings.Repeat("x", maxMessage-1)+"é", all) // which is two bytes
		time.Sleep(4 * time.Second)
		j = openJournal(t, root)
		d, ok := j.PendingKill(podtest.New("a"))
		if d != (PendingKill{"low on memory", true, 6 * time.Second}) || !ok {
			t.Errorf("a: %+v, %v", d, ok)
		}
		if d, _ := j.PendingKill(podtest.New("b")); d.Message != strings.Repeat("x", maxMessage-1) {
			t.Errorf("b has a message of %d bytes, that ends with %q", len(d.Message),
				d.Message[len(d.Message)-1:])
		}
		time.Sleep(time.Minute)
		if d, _ := j.PendingKill(podtest.New("a")); d.Grace != leastGrace {
			t.Errorf("after its grace period a has %v", d.Grace)
		}
		ended := podtest.New("a")
		ended.Status.Phase = v1.PodFailed
		for _, pod := range []*v1.Pod{ended, podtest.New("c")} {
			if _, ok := j.PendingKill(pod); ok {
				t.Errorf("%s %s is being evicted", pod.Name, pod.Status.Phase)
			}
		}
		r, ok := j.last(func(uid types.UID) bool { return uid == "a" })
		if !ok || r.uid != "a" || r.signal != NodeFSAvailable {
			t.Errorf("a runs, and the end of %+v is awaited", r)
		}
		add("c", "", func(uid types.UID) bool { return uid != "a" })
		for i := range mostKept - 1 {
			add(types.UID(fmt.Sprint(i)), "", all)
		}
		j = openJournal(t, root)
		for uid, want := range map[string]bool{"a": false, "b": false, "c": true, "0": true} {
			if _, ok := j.PendingKill(podtest.New(uid)); ok != want {
				t.Errorf("%s is remembered: %v", uid, ok)
			}
		}
	})
}

// A journal that is broken is moved aside, and one that cannot be written stops no eviction.
func TestBrokenJournal(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, JournalFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if j, err := OpenJournal(root); !errors.Is(err, files.ErrUnusable) || len(j.all) > 0 {
		t.Errorf("it has %v, %v", j.all, err)
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, kubeletv1beta1.KubeletConfiguration{
			EvictionHard: map[string]string{"memory.available": "100Mi"}})
		w.journal.path = filepath.Join(root, "none", "such")
		w.runs("a 950")
		w.look(t.Context())
		if len(w.gone) != 1 {
			t.Errorf("evicted: %v", w.gone)
		}
		time.Sleep(time.Minute)
	})
}

// TestJournalOnDisk: an eviction counts once it is on the disk. PendingKill does not wait for a disk that
// hangs, since the syncLoop calls it.
func TestJournalOnDisk(t *testing.T) {
	j := openJournal(t, t.TempDir())
	all := func(types.UID) bool { return true }
	of := func(name string) Eviction { return Eviction{Pod: podtest.New(name), Grace: time.Minute} }
	if err := j.add(of("a"), all); err != nil {
		t.Fatal(err)
	}
	j.writing.Lock() // as while the disk hangs
	if _, ok := j.PendingKill(podtest.New("a")); !ok {
		t.Error("what is on the disk is not known while more is written")
	}
	j.writing.Unlock()
	path := j.path
	j.path = filepath.Join(path, "in the way")
	if err := j.add(of("b"), all); err == nil {
		t.Error("a journal was written below a file")
	}
	if _, ok := j.PendingKill(podtest.New("b")); ok {
		t.Error("an eviction counts that could not be written")
	}
	j.path = path
	if err := j.add(of("c"), all); err != nil {
		t.Fatal(err)
	}
	if after := openJournal(t, filepath.Dir(path)); len(after.all) != 2 {
		t.Errorf("the next run knows %+v", after.all)
	}
}

// TestRestart: what an earlier run was about to evict is awaited before another pod is chosen.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, kubeletv1beta1.KubeletConfiguration{
			EvictionHard: map[string]string{"memory.available": "100Mi"}})
		w.runs("a 300, b 650")
		w.lasts["b"] = time.Hour
		w.look(t.Context())
		next, err := OpenJournal(filepath.Dir(w.journal.path))
		if err != nil {
			t.Fatal(err)
		}
		again := &Manager{cfg: w.cfg, evicts: w.evicts, age: w.age}
		again.cfg.Journal = next
		w.news()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- again.Run(ctx) }()
		time.Sleep(patience - time.Second)
		if said := w.news(); len(said) > 0 {
			t.Errorf("while b ends: %q", said)
		}
		time.Sleep(2 * time.Second)
		if len(w.news()) == 0 {
			t.Error("b does not end, and nobody else is chosen")
		}
		cancel()
		<-ended
		time.Sleep(2 * time.Hour) // pods that end late
	})
}
