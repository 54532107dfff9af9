package userns

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
)

func pod(uid string) *v1.Pod {
	return podtest.New(uid, func(p *v1.Pod) { p.Spec.HostUsers = new(false) })
}

func open(t *testing.T, c Config) *Ranges {
	t.Helper()
	r, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRanges(t *testing.T) {
	dir := t.TempDir()
	c := Config{Pods: dir, Host: Block{131072, 3 * 65536}, PerPod: 65536, Begin: 7}
	r := open(t, c)
	if ids, err := r.Of(&v1.Pod{}); ids != nil || err != nil {
		t.Errorf("a pod with the host's ids has %v, %v", ids, err)
	}
	want := map[string]uint32{"a": 131072 + 65536, "b": 131072 + 2*65536, "c": 131072}
	for _, uid := range []string{"a", "b", "c"} {
		if ids, err := r.Of(pod(uid)); err != nil || *ids != (cri.IDs{First: want[uid],
			Length: 65536}) {
			t.Errorf("pod %s has %v, %v", uid, ids, err)
		}
	}
	raw, err := os.ReadFile(filepath.Join(dir, "a", "userns"))
	const file = `{"uidMappings":[{"hostId":196608,"containerId":0,"length":65536}],` +
		`"gidMappings":[{"hostId":196608,"containerId":0,"length":65536}]}`
	if string(raw) != file || err != nil {
		t.Errorf("the file has %s, %v", raw, err)
	}
	if _, err := r.Of(pod("d")); err == nil || !strings.Contains(err.Error(), "all 3 ranges") {
		t.Errorf("a pod too many: %v", err)
	}
	r = open(t, c) // another run of the agent
	for uid, first := range want {
		if ids, err := r.Of(pod(uid)); err != nil || ids.First != first {
			t.Errorf("pod %s has %v, %v after a restart", uid, ids, err)
		}
	}
	for range 2 { // a repeated release does nothing
		if err := r.Release("b"); err != nil {
			t.Error(err)
		}
	}
	if ids, err := r.Of(pod("d")); err != nil || ids.First != want["b"] {
		t.Errorf("what was released is %v, %v", ids, err)
	}
}

// Files from another configuration and damaged files block only the ids that they may mean.
func TestFilesOfAnotherTime(t *testing.T) {
	dir := t.TempDir()
	write := func(uid, text string) {
		if err := os.MkdirAll(filepath.Join(dir, uid), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, uid, "userns"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mapped := func(host, container, length uint64) string {
		one := fmt.Sprintf(`[{"hostId":%d,"containerId":%d,"length":%d}]`, host, container, length)
		return `{"uidMappings":` + one + `,"gidMappings":` + one + `}`
	}
	write("wide", mapped(65536, 0, 131072)) // with twice as many ids per pod
	bad := map[string]string{
		"text": "?", "empty": "{}", "shifted": mapped(65536, 1, 65536),
		"none": mapped(65536, 0, 0), "odd": mapped(65536, 0, 1000),
		"root": mapped(0, 0, 65536), "beyond": mapped(1<<32-65536, 0, 131072),
		"differ": `{"uidMappings":[{"hostId":65536,"length":65536}],"gidMappings":[]}`,
		"long":   mapped(65536, 0, 65536) + strings.Repeat(" ", maxFile),
	}
	for uid, text := range bad {
		write(uid, text)
	}
	r := open(t, Config{Pods: dir, Host: Block{65536, 4 * 65536}, PerPod: 65536})
	for uid := range bad {
		if ids, err := r.Of(pod(uid)); err == nil || !strings.Contains(err.Error(), uid) ||
			!strings.Contains(err.Error(), "delete the pod") {
			t.Errorf("file %q: %v, %v", uid, ids, err)
		}
		if err := r.Release(types.UID(uid)); err != nil {
			t.Error(err)
		}
	}
	for _, first := range []uint32{3 * 65536, 4 * 65536} {
		if ids, err := r.Of(pod(fmt.Sprint(first))); err != nil || ids.First != first {
			t.Errorf("got %v, %v; want %d", ids, err, first)
		}
	}
	if ids, err := r.Of(pod("one more")); err == nil {
		t.Errorf("a pod got %v, which another one has", ids)
	}
}

// Whatever starts, ends and is restarted, no two pods share an id, and a pod keeps its own.
func TestNoTwoHaveTheSame(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	c := Config{Pods: t.TempDir(), Host: Block{65536, 8 * 65536}, PerPod: 65536}
	r, has := open(t, c), map[string]uint32{}
	for step := range 2000 {
		uid := fmt.Sprint("p", random.IntN(12))
		switch random.IntN(5) {
		case 0:
			c.Begin = random.IntN(100)
			r = open(t, c)
		case 1, 2:
			if err := r.Release(types.UID(uid)); err != nil {
				t.Fatal(err)
			}
			delete(has, uid)
		default:
			ids, err := r.Of(pod(uid))
			before, had := has[uid]
			if full := len(has) == 8 && !had; (err != nil) != full {
				t.Fatalf("seed %d step %d: %v, %v with %v", seed, step, ids, err, has)
			} else if full {
				continue
			}
			if had && ids.First != before {
				t.Fatalf("seed %d step %d: %s had %d, has %d", seed, step, uid, before, ids.First)
			}
			for other, first := range has {
				if other != uid && first == ids.First {
					t.Fatalf("seed %d step %d: %s and %s have %d", seed, step, uid, other, first)
				}
			}
			has[uid] = ids.First
		}
	}
}

// Ids that could not be written are nobody's, and the pod gets some when it asks again.
func TestFailedWrite(t *testing.T) {
	dir := t.TempDir()
	r := open(t, Config{Pods: dir, Host: Block{65536, 2 * 65536}, PerPod: 65536})
	inTheWay := filepath.Join(dir, "a")
	if err := os.WriteFile(inTheWay, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if ids, err := r.Of(pod("a")); err == nil {
			t.Fatalf("%v was given and not written", ids)
		}
	}
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []string{"a", "b"} {
		if _, err := r.Of(pod(uid)); err != nil {
			t.Errorf("pod %s: %v", uid, err)
		}
	}
}

func TestTooFewIDs(t *testing.T) {
	_, err := New(Config{Pods: t.TempDir(), Host: Block{65536, 1000}, PerPod: 65536})
	if err == nil || !strings.Contains(err.Error(), "idsPerPod") {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"uidMappings":[{"hostId":196608,"containerId":0,"length":65536}],` +
		`"gidMappings":[{"hostId":196608,"containerId":0,"length":65536}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		ids, err := parse(raw)
		if err == nil && (ids.First < 65536 || ids.Length == 0 ||
			uint64(ids.First)+uint64(ids.Length) > 1<<32) {
			t.Errorf("%s is %+v", raw, ids)
		}
	})
}
