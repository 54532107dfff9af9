package cordon

import (
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
)

const gpu = "example.com/gpu"

func open(t *testing.T, path string) *Book {
	t.Helper()
	b, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBookIsRemembered(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	b := open(t, path)
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []Cordon{
		{gpu, "gpu-1", "first", since}, {gpu, "gpu-0", "", since},
		{"example.com/nic", "nic-0", "", since},
	} {
		if isNew, err := b.Put(c); !isNew || err != nil {
			t.Fatalf("Put(%+v) = %v, %v", c, isNew, err)
		}
	}
	// Another reason, and the same time.
	isNew, err := b.Put(Cordon{gpu, "gpu-1", "second", since.Add(time.Hour)})
	if isNew || err != nil {
		t.Fatalf("Put again = %v, %v", isNew, err)
	}
	for _, want := range []bool{true, false} {
		if was, err := b.Remove(gpu, "gpu-0"); was != want || err != nil {
			t.Fatalf("Remove = %v, %v; want %v", was, err, want)
		}
	}
	want := []Cordon{{gpu, "gpu-1", "second", since}, {"example.com/nic", "nic-0", "", since}}
	for name, book := range map[string]*Book{"before": b, "after": open(t, path)} {
		if got := book.List(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	if len(b.Of("example.com/other")) != 0 || len((*Book)(nil).Of(gpu)) != 0 {
		t.Error("there are cordons of what was not cordoned")
	}
}

// A write that fails changes nothing.
func TestFailedWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	b := open(t, filepath.Join(dir, FileName))
	if _, err := b.Put(Cordon{Resource: gpu, ID: "gpu-0"}); err == nil {
		t.Fatal("a book without a directory was written")
	}
	if all := b.List(); len(all) != 0 {
		t.Errorf("it has %v", all)
	}
}

func TestBookIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	all := file{Version: version}
	for i := range maxCordons {
		all.Cordons = append(all.Cordons, Cordon{Resource: gpu, ID: fmt.Sprint(i)})
	}
	raw, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	b := open(t, path)
	if _, err := b.Put(Cordon{Resource: gpu, ID: "more"}); !errors.Is(err, ErrFull) {
		t.Errorf("one more: %v", err)
	}
	if _, err := b.Put(Cordon{Resource: gpu, ID: "7", Reason: "known"}); err != nil {
		t.Errorf("one that is there: %v", err)
	}
}

func TestDamagedBookIsMovedAside(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"no JSON": {"{", "it is not"},
		"cut":     {`{"version": "v1", "cordons": [{"resource": "example.com/gpu"`, "it is not"},
		"version": {`{"version": "v2", "cordons": []}`, `it is of version "v2"`},
		"unknown": {`{"version": "v1", "cordons": [], "more": 1}`, "more: unknown field"},
		"twice": {`{"version": "v1", "cordons": [{"resource": "example.com/gpu", "id": "a"},
			{"resource": "example.com/gpu", "id": "a"}]}`, "example.com/gpu a is in it twice"},
		"resource": {`{"version": "v1", "cordons": [{"resource": "cpu", "id": "a"}]}`,
			"no resource of a device plugin"},
		"no id": {`{"version": "v1", "cordons": [{"resource": "example.com/gpu"}]}`,
			"the device's id is empty"},
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
			if _, err := b.Put(Cordon{Resource: gpu, ID: "a"}); err != nil {
				t.Fatal(err)
			}
			if got := open(t, path).List(); len(got) != 1 {
				t.Errorf("the new book has %v", got)
			}
			if aside, _ := filepath.Glob(path + ".corrupt-*"); len(aside) != 1 {
				t.Errorf("moved aside are %v", aside)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	for want, c := range map[string]Cordon{
		"":                           {Resource: gpu, ID: "gpu-0"},
		"not the name of a resource": {Resource: "a b/c", ID: "gpu-0"},
		"no resource of a device":    {Resource: "memory", ID: "gpu-0"},
		"the device's id has 5000":   {Resource: gpu, ID: strings.Repeat("x", 5000)},
		"the device's id is not UTF": {Resource: gpu, ID: "\xff"},
		"the reason has 2000 bytes":  {Resource: gpu, ID: "a", Reason: strings.Repeat("x", 2000)},
		"the reason is not UTF-8":    {Resource: gpu, ID: "a", Reason: "\xff"},
		"the device's id is empty":   {Resource: gpu},
	} {
		err := c.Check()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Long ids fill the book before there are too many of them, and what was written can be read.
func TestLongIDsFillTheBook(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	all, id := file{Version: version}, strings.Repeat("\x01", maxIDBytes-10) // 6 bytes each in JSON
	for i := range 680 {
		all.Cordons = append(all.Cordons, Cordon{Resource: gpu, ID: fmt.Sprint(id, i)})
	}
	raw, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	b, put := open(t, path), 0
	for err == nil {
		if _, err = b.Put(Cordon{Resource: gpu, ID: fmt.Sprint(id, "x", put)}); err == nil {
			put++
		}
	}
	if !errors.Is(err, ErrFull) || len(open(t, path).List()) != 680+put {
		t.Errorf("after %d more: %v", put, err)
	}
}
