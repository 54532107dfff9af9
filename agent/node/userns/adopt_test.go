package userns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/cri"
)

func running(uid string, ids ...cri.IDs) cri.Pod {
	p := cri.Pod{UID: types.UID(uid)}
	for _, one := range ids {
		p.Sandboxes = append(p.Sandboxes, cri.Sandbox{Ready: true, IDs: one})
	}
	return p
}

func at(n uint32) cri.IDs { return cri.IDs{First: n * 65536, Length: 65536} }

// A running pod has its sandbox's ids again, whatever became of its file, and in the next run of the
// agent too. No other pod gets them, and they are free once it is gone.
func TestLostFileOfRunningPod(t *testing.T) {
	file := func(path string) error { return os.WriteFile(path, []byte("?"), 0o600) }
	for name, damage := range map[string]func(path string) error{
		"missing":      os.Remove,
		"no directory": func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
		"damaged":      file,
		"another range": func(path string) error {
			text, err := os.ReadFile(path)
			return errors.Join(err, os.WriteFile(path,
				[]byte(strings.ReplaceAll(string(text), "131072", "196608")), 0o600))
		},
		"a folder": func(path string) error {
			return errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "kept"), 0o700))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c := Config{Pods: dir, Host: Block{65536, 3 * 65536}, PerPod: 65536, Begin: 1}
			if ids, err := open(t, c).Of(pod("a")); err != nil || *ids != at(2) {
				t.Fatal(ids, err)
			}
			if err := damage(filepath.Join(dir, "a", "userns")); err != nil {
				t.Fatal(err)
			}
			r := open(t, c)
			for i, want := range []int{1, 0} { // the second time its file is right
				if got := r.Adopt([]cri.Pod{running("a", at(2)), running("host", cri.IDs{})}); len(got) !=
					want || want == 1 && (got[0].Was == nil || got[0].Err != nil || got[0].IDs != at(2)) {
					t.Errorf("call %d: adopted %+v", i, got)
				}
			}
			if name == "a folder" {
				if kept, _ := filepath.Glob(filepath.Join(dir, "a", "*", "kept")); len(kept) != 1 {
					t.Error("what stood in the file's place is gone")
				}
			}
			for _, r := range []*Ranges{r, open(t, c)} {
				if ids, err := r.Of(pod("a")); err != nil || *ids != at(2) {
					t.Errorf("the pod has %+v, %v", ids, err)
				}
			}
			for _, first := range []uint32{3, 1} {
				if ids, err := r.Of(pod(fmt.Sprint(first))); err == nil && *ids == at(2) {
					t.Errorf("another pod has the same ids")
				}
			}
			if ids, err := r.Of(pod("b")); err == nil {
				t.Errorf("another pod has %+v", ids)
			}
			if err := r.Release("a"); err != nil {
				t.Fatal(err)
			}
			if ids, err := r.Of(pod("b")); err != nil || *ids != at(2) {
				t.Errorf("what was released is %+v, %v", ids, err)
			}
		})
	}
}

// What does not run lends no ids, nor does a sandbox whose ids cannot be a pod's.
func TestNothingToAdopt(t *testing.T) {
	r := open(t, Config{Pods: t.TempDir(), Host: Block{65536, 65536}, PerPod: 65536})
	ended := running("ended", at(1))
	ended.Sandboxes[0].Ready = false
	got := r.Adopt([]cri.Pod{
		ended, running("root", at(0)), running("odd", cri.IDs{First: 65536, Length: 1}),
		running("beyond", cri.IDs{First: 1<<32 - 65536, Length: 131072}), running("none"),
	})
	if len(got) > 0 {
		t.Errorf("adopted %+v", got)
	}
	if ids, err := r.Of(pod("new")); err != nil || *ids != at(1) {
		t.Errorf("a new pod has %+v, %v", ids, err)
	}
}

// The newest sandbox counts, and a file that cannot be written changes nothing but the next run.
func TestAdoptWithoutDisk(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := open(t, Config{Pods: dir, Host: Block{65536, 2 * 65536}, PerPod: 65536})
	got := r.Adopt([]cri.Pod{running("a", at(2), at(1))})
	if len(got) != 1 || got[0].Err == nil {
		t.Errorf("adopted %+v", got)
	}
	if ids, err := r.Of(pod("a")); err != nil || cmp.Diff(at(2), *ids) != "" {
		t.Errorf("the pod has %+v, %v", ids, err)
	}
	if ids, err := r.Of(pod("b")); err != nil || *ids != at(1) {
		t.Errorf("another pod has %+v, %v", ids, err)
	}
}
