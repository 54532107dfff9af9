package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// replace knows what it wrote: it neither reads nor compares it again until the agent restarts, and
// after each call the directory has what it should.
func TestReplaceReadsNothingAgain(t *testing.T) {
	dir := t.TempDir()
	others := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	is := func(a, b string, last *version) *version {
		t.Helper()
		files := map[string]file{"a": text("1"), "b": text(b)}
		last, err := replace(dir, files, owner{}, last)
		if err != nil {
			t.Fatal(err)
		}
		if got := read(t, filepath.Join(dir, "a")) + read(t, filepath.Join(dir, "b")); got != a+b {
			t.Errorf("read %q, want %q", got, a+b)
		}
		return last
	}
	last := is("1", "2", nil)
	others("a", "X")
	last = is("X", "2", last)
	last = is("X", "3", last)
	is("1", "3", nil)
	others("b", "Y")
	is("1", "4", last) // which is another version than the one that is there
}

// BenchmarkReplaceOneOfMany changes one of 9,000 files at a time, as if one key of an object
// changed. It reads the last version, or knows it.
func BenchmarkReplaceOneOfMany(b *testing.B) {
	cpu := func() time.Duration {
		var used unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
			b.Fatal(err)
		}
		return time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	for _, known := range []bool{false, true} {
		b.Run(fmt.Sprintf("known=%t", known), func(b *testing.B) {
			dir, files := b.TempDir(), map[string]file{}
			for i := range 9000 {
				files[fmt.Sprint("key", i)] = text(fmt.Sprint("a value of some length, number ", i))
			}
			var last *version
			change := func(i int) {
				files["key7"] = text(fmt.Sprint("another one ", i))
				now, err := replace(dir, files, owner{}, last)
				if err != nil {
					b.Fatal(err)
				}
				if known {
					last = now
				}
			}
			change(-1)
			before := cpu()
			for i := 0; b.Loop(); i++ {
				change(i)
			}
			b.ReportMetric(float64((cpu()-before).Milliseconds())/float64(b.N), "cpu-ms/op")
		})
	}
}
