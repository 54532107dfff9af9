package recall

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/topology"
)

const gpu, nic = "example.com/gpu", "example.com/nic"

var gone = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// put writes resources into a book.
func put(b *Book, all []Resource) error {
	return Record(b, func(all []Resource) []Resource { return all }).Set(all)
}

func open(t *testing.T, path string) *Book {
	t.Helper()
	b, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A plugin that was there when the agent ended was last there when the agent was.
func TestBookIsRemembered(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	b := open(t, path)
	if left := b.Left(); len(left) != 0 {
		t.Fatalf("a new book has %v", left)
	}
	all := []Resource{
		{Name: gpu, Sets: []Set{
			{Healthy: true, Nodes: Nodes{topology.NewNodeSet(0, 1)}, IDs: []string{"gpu-0", "gpu-1"}},
			{NoNodes: true, IDs: []string{"gpu-2"}},
		}},
		{Name: nic, Gone: gone},
	}
	if err := put(b, all); err != nil {
		t.Fatal(err)
	}
	there := gone.Add(time.Hour)
	if err := b.Touch(there); err != nil {
		t.Fatal(err)
	}
	got := open(t, path).Left()
	for i := range got {
		got[i].Gone = got[i].Gone.UTC()
	}
	all[0].Gone = there
	if !reflect.DeepEqual(got, all) {
		t.Errorf("left are\n%+v, want\n%+v", got, all)
	}
}

// A clock that went back says nothing of when a plugin was there.
func TestTimesToCome(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	b := open(t, path)
	later := time.Now().Add(time.Hour)
	if err := errors.Join(put(b, []Resource{{Name: gpu}, {Name: nic, Gone: later}}),
		b.Touch(later)); err != nil {
		t.Fatal(err)
	}
	for _, r := range open(t, path).Left() {
		if r.Gone.After(time.Now()) {
			t.Errorf("%s was there until %s", r.Name, r.Gone)
		}
	}
}

func TestFailedWrite(t *testing.T) {
	b := open(t, filepath.Join(t.TempDir(), "gone", FileName))
	if err := put(b, []Resource{{Name: gpu}}); err == nil {
		t.Error("a book without a directory was written")
	}
	if err := b.Touch(gone); err != nil {
		t.Errorf("nothing to touch: %v", err)
	}
}

func TestDamagedBookIsMovedAside(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"no JSON": {"{", "it is not JSON"},
		"version": {`{"version": "v2", "resources": []}`, `it is of version v2`},
		"unknown": {`{"version": "v1", "more": 1}`, `unknown field "more"`},
		"twice":   {`{"version": "v1", "resources": [{"resource": "a"}, {"resource": "a"}]}`, `"a" is in it twice`},
		"no name": {`{"version": "v1", "resources": [{}]}`, "has no name"},
		"nodes": {`{"version": "v1", "resources": [{"resource": "a", "sets": [{"nodes": "x"}]}]}`,
			"it is not JSON of its kind"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), FileName)
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			b, err := Open(path)
			if !errors.Is(err, files.ErrUnusable) || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("%v, want %s", err, tt.want)
			}
			if err := put(b, []Resource{{Name: gpu}}); err != nil || len(open(t, path).Left()) != 1 {
				t.Errorf("the new book cannot be used: %v", err)
			}
			if aside, _ := filepath.Glob(path + ".corrupt-*"); len(aside) != 1 {
				t.Errorf("moved aside are %v", aside)
			}
		})
	}
}

// What has no room goes without its devices, and what has room stays whole.
func TestLongListsHaveNoRoom(t *testing.T) {
	of := func(name, id string) Resource {
		return Resource{Name: name, Gone: gone, Sets: []Set{{Healthy: true, IDs: []string{id}}}}
	}
	long, short := of(gpu, strings.Repeat("x", 1000)), of(nic, "nic-0")
	got, err := fitting([]Resource{long, short}, 500)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []Resource{{Name: gpu, Gone: gone}, short} {
		var r Resource
		if err := json.Unmarshal(got[i], &r); err != nil || !reflect.DeepEqual(r, want) {
			t.Errorf("%+v (%v), want %+v", r, err, want)
		}
	}
}
