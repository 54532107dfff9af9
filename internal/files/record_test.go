package files

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func decoded(raw []byte) (value map[string]int, err error) {
	return value, json.Unmarshal(raw, &value)
}

// What is set is on the disk before it is believed: what could not be written is not.
func TestRecord(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	path := filepath.Join(dir, "record")
	r := NewRecord(path, 30, map[string]int(nil))
	if err := r.Set(map[string]int{"a": 1}); err == nil || r.Get() != nil {
		t.Errorf("without a folder: %v, %v", r.Get(), err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := r.Set(map[string]int{"a": 1}); err != nil || r.Get()["a"] != 1 {
		t.Errorf("with one: %v, %v", r.Get(), err)
	}
	long := map[string]int{strings.Repeat("b", 40): 2}
	if err := r.Set(long); !errors.Is(err, ErrTooLarge) || r.Get()["a"] != 1 {
		t.Errorf("too large: %v, %v", r.Get(), err)
	}
	if value, err := Load(path, 30, time.Now(), decoded); err != nil || value["a"] != 1 {
		t.Errorf("the file has %v, %v", value, err)
	}
}

// A file that cannot be used goes aside, and one that is not there is no error.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	path, aside := filepath.Join(dir, "record"), filepath.Join(dir, "record.corrupt-19700101T000000.000")
	if value, err := Load(path, 30, time.Now(), decoded); value != nil || err != nil {
		t.Errorf("no file: %v, %v", value, err)
	}
	for _, bad := range []string{`{"a":1`, strings.Repeat(" ", 31)} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		value, err := Load(path, 30, time.Unix(0, 0), decoded)
		var unusable *Unusable
		if value != nil || !errors.Is(err, ErrUnusable) || !errors.As(err, &unusable) ||
			unusable.Aside != aside {
			t.Errorf("%q: %v, %v", bad, value, err)
		}
		if kept, err := os.ReadFile(aside); err != nil || string(kept) != bad {
			t.Errorf("%q: kept is %q, %v", bad, kept, err)
		}
		// As long as that is there the next one stays where it is.
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path, 30, time.Unix(0, 0), decoded); err == nil || errors.As(err, &unusable) {
			t.Errorf("%q in the way: %v", bad, err)
		}
		if err := os.Remove(aside); err != nil {
			t.Fatal(err)
		}
	}
}
