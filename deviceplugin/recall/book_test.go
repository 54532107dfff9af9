package recall

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
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

// put writes resources into a book whose owner was there last at that time.
func put(t *testing.T, b *Book, there time.Time, all ...Resource) {
	t.Helper()
	if !b.Keep(t.Context(), all, nil) {
		t.Fatal("the book cannot be written")
	}
	if err := os.Chtimes(b.path, there, there); err != nil {
		t.Fatal(err)
	}
}

// machine has the NUMA nodes.
var machine = topology.NewNodeSet(0, 1)

func open(t *testing.T, path string) *Book {
	t.Helper()
	b, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A plugin that was there when the agent ended was last there when the agent was. Of the devices' nodes
// the machine's count.
func TestBookIsRemembered(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	b := open(t, path)
	if left := b.Left(machine); len(left) != 0 {
		t.Fatalf("a new book has %v", left)
	}
	want := []Resource{
		{Name: gpu, Devices: []*Device{
			{ID: "gpu-0", Healthy: true, Nodes: topology.NewNodeSet(0, 1)},
			{ID: "gpu-2", NoNodes: true},
			{ID: "gpu-1", Healthy: true, Nodes: topology.NewNodeSet(0, 1)},
		}, Addresses: map[string]string{"gpu-1": "0000:1b:00.0"}},
		{Name: nic, Gone: gone, PreStart: true},
	}
	there := gone.Add(time.Hour)
	put(t, b, there, want...)
	const text = `{"version":"v1","resources":[{"resource":"example.com/gpu","sets":[` +
		`{"healthy":true,"nodes":"0-1","ids":["gpu-0","gpu-1"],"pci":["","0000:1b:00.0"]},` +
		`{"noNodes":true,"ids":["gpu-2"],"pci":[""]}]},` +
		`{"resource":"example.com/nic","gone":"2026-01-02T03:04:05Z","preStart":true}]}` + "\n"
	if raw, err := os.ReadFile(path); err != nil || string(raw) != text {
		t.Errorf("the file has\n%s (%v), want\n%s", raw, err, text)
	}
	b = open(t, path)
	got := b.Left(topology.NewNodeSet(1))
	for i := range got {
		got[i].Gone = got[i].Gone.UTC()
	}
	d := want[0].Devices
	want[0].Gone, want[0].Devices = there, []*Device{d[0], d[2], d[1]}
	d[0].Nodes, d[2].Nodes = topology.NewNodeSet(1), topology.NewNodeSet(1)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("left are\n%+v, want\n%+v", got, want)
	}
	put(t, b, there)
	if left := b.Left(machine); len(left) != 0 {
		t.Errorf("after the first write an earlier run has left %+v", left)
	}
}

// A clock that went back says nothing of when a plugin was there.
func TestTimesToCome(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	b := open(t, path)
	later := time.Now().Add(time.Hour)
	put(t, b, later, Resource{Name: gpu}, Resource{Name: nic, Gone: later})
	for _, r := range open(t, path).Left(machine) {
		if r.Gone.After(time.Now()) {
			t.Errorf("%s was there until %s", r.Name, r.Gone)
		}
	}
}

// What changed is written, also in the first write of a run; what is held back is as it was.
func TestKeepWritesWhatChanged(t *testing.T) {
	b := open(t, filepath.Join(t.TempDir(), FileName))
	of := func(name string, healthy bool) Resource {
		return Resource{Name: name, Devices: []*Device{{ID: "0", Healthy: healthy}}}
	}
	held := map[string]bool{gpu: true}
	for i, step := range []struct {
		now  []Resource
		held map[string]bool
		want string
	}{
		{nil, nil, "nothing"},
		{nil, nil, "no file"},
		{[]Resource{of(nic, true), of(gpu, true)}, held, gpu + " true, " + nic + " true"},
		{[]Resource{of(gpu, false), of(nic, true)}, held, "no file"},
		{[]Resource{of(gpu, false), of(nic, false)}, held, gpu + " true, " + nic + " false"},
		{[]Resource{of(gpu, false), of(nic, false)}, nil, gpu + " false, " + nic + " false"},
		{[]Resource{of(nic, false)}, held, nic + " false"},
	} {
		kept := b.Keep(t.Context(), step.now, step.held)
		var has []string
		for _, r := range open(t, b.path).Left(machine) {
			has = append(has, fmt.Sprint(r.Name, " ", r.Devices[0].Healthy))
		}
		got := cmp.Or(strings.Join(has, ", "), "nothing")
		if err := os.Remove(b.path); err != nil {
			got = "no file"
		}
		if !kept || got != step.want {
			t.Errorf("step %d: kept: %t, written: %s, want %s", i, kept, got, step.want)
		}
	}
}

// What cannot be written is written with the next call, the presence of plugins too.
func TestFailedWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	b, all := open(t, filepath.Join(dir, FileName)), []Resource{{Name: gpu}}
	if b.Keep(t.Context(), all, nil) {
		t.Error("a book without a directory was written")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, b, gone, all...)
	if err := errors.Join(os.Rename(dir, dir+"-away"), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	b.Touch(t.Context(), all)
	if !b.wrong.Lasts() {
		t.Error("a book behind a file was touched")
	}
	if err := errors.Join(os.Remove(dir), os.Rename(dir+"-away", dir)); err != nil {
		t.Fatal(err)
	}
	b.Touch(t.Context(), all)
	if left := open(t, b.path).Left(machine); len(left) != 1 || !left[0].Gone.After(gone) {
		t.Errorf("left are %+v", left)
	}
	if err := os.Remove(b.path); err != nil {
		t.Fatal(err)
	}
	if b.Touch(t.Context(), all); b.wrong.Lasts() {
		t.Error("there was nothing to touch, and that is wrong")
	}
}

// Of resources that are known by name alone those remain that went last.
func TestNamesAreBounded(t *testing.T) {
	listed := Resource{Name: "a", Gone: gone, Devices: []*Device{{ID: "0"}}}
	in := []Resource{listed, {Name: "b"}}
	for i := range mostGone + 2 {
		in = append(in, Resource{Name: fmt.Sprintf("c%04d", i), Gone: gone.Add(time.Duration(i) * time.Second)})
	}
	got := bounded(in)
	if len(got) != mostGone+2 || got[0].Name != "a" || got[1].Name != "b" || got[2].Name != "c0002" {
		t.Errorf("%d remain, first %+v", len(got), got[:3])
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
			put(t, b, gone, Resource{Name: gpu})
			if left := open(t, path).Left(machine); len(left) != 1 {
				t.Errorf("the new book has %+v", left)
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
		return Resource{Name: name, Gone: gone, Devices: []*Device{{ID: id, Healthy: true}}}
	}
	long, short := of(gpu, strings.Repeat("x", 1000)), of(nic, "nic-0")
	got, err := fitting([]Resource{long, short}, 500)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []Resource{{Name: gpu, Gone: gone}, short} {
		var e entry
		if err := json.Unmarshal(got[i], &e); err != nil || !reflect.DeepEqual(e.resource(machine), want) {
			t.Errorf("%+v (%v), want %+v", e, err, want)
		}
	}
}
