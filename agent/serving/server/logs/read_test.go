package logs

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/ptr"
)

// at returns the time of second n in the runtimes' format.
func at(n int) string { return fmt.Sprintf("2020-11-22T10:00:%02d.5Z", n) }

// shown returns the same time in the format for clients.
func shown(n int) string { return fmt.Sprintf("2020-11-22T10:00:%02d.500000000Z", n) }

func write(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func compress(t *testing.T, path, text string) {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, path, b.String())
}

// threeFiles is a log with a compressed and a plain rotated file: the seconds 0 to 6.
func threeFiles(t *testing.T) Log {
	t.Helper()
	path := filepath.Join(t.TempDir(), "0.log")
	compress(t, path+".20261122-100001.gz",
		at(0)+" stdout F zero\n"+at(1)+" stderr F one\n")
	write(t, path+".20261122-100003", at(2)+" stdout P tw\n"+at(2)+" stdout F o\n"+
		at(3)+" stdout F three\n")
	compress(t, path+".20261122-100003.gz", at(2)+" stdout F being compressed\n")
	write(t, path, at(4)+" stderr F four\n"+"rubbish\n"+at(5)+" stdout F:x five\n"+
		at(6)+" stdout F six")
	write(t, path+".20261122-100001.gz.tmp", "none of it")
	write(t, filepath.Join(filepath.Dir(path), "1.log"), at(0)+" stdout F another\n")
	return Log{Path: path, Running: func() bool { return false }}
}

func TestCopy(t *testing.T) {
	long := strings.Repeat("x", 3*maxLine)
	for name, tc := range map[string]struct {
		options Options
		extra   string // appended after "six"
		want    string
	}{
		"all":   {Options{}, "\n", "zero\none\ntwo\nthree\nfour\nfive\nsix\n"},
		"torn":  {Options{}, "", "zero\none\ntwo\nthree\nfour\nfive\nsix\n"},
		"none":  {Options{Tail: ptr.To[int64](0)}, "\n", ""},
		"tail":  {Options{Tail: ptr.To[int64](1)}, "\n", "six\n"},
		"tail2": {Options{Tail: ptr.To[int64](1)}, "", "six\n"},
		"tail across files": {Options{Tail: ptr.To[int64](6)}, "\n",
			"one\ntwo\nthree\nfour\nfive\nsix\n"},
		"tail of more than there is": {Options{Tail: ptr.To[int64](100)}, "\n",
			"zero\none\ntwo\nthree\nfour\nfive\nsix\n"},
		"tail of one stream": {Options{Tail: ptr.To[int64](2), Stream: "stderr"}, "\n",
			"one\nfour\n"},
		"stdout": {Options{Stream: "stdout"}, "\n", "zero\ntwo\nthree\nfive\nsix\n"},
		"since": {Options{Since: time.Date(2020, 11, 22, 10, 0, 4, 5e8, time.UTC)}, "\n",
			"four\nfive\nsix\n"},
		"timestamps": {Options{Timestamps: true, Tail: ptr.To[int64](5)}, "\n",
			shown(2) + " two\n" + shown(3) + " three\n" + shown(4) + " four\n" +
				shown(5) + " five\n" + shown(6) + " six\n"},
		"limit":         {Options{Limit: ptr.To[int64](7)}, "\n", "zero\non"},
		"limit of tail": {Options{Limit: ptr.To[int64](2), Tail: ptr.To[int64](1)}, "\n", "si"},
		"limit at a line's end": {Options{Limit: ptr.To[int64](5)}, "\n",
			"zero\n"},
		"a long line": {Options{Tail: ptr.To[int64](1), Timestamps: true}, long + "\n",
			shown(6) + " six" + long + "\n"},
		"a long line left out": {Options{Tail: ptr.To[int64](1)},
			long + "\n" + at(7) + " stdout F seven\n", "seven\n"},
		"follow what has ended": {Options{Follow: true, Tail: ptr.To[int64](2)}, "\n",
			"five\nsix\n"},
	} {
		l := threeFiles(t)
		write(t, l.Path, tc.extra)
		var out strings.Builder
		if err := l.Copy(t.Context(), &out, tc.options); err != nil || out.String() != tc.want {
			t.Errorf("%s: %v %.300q, want %.300q", name, err, out.String(), tc.want)
		}
	}
}

// The unreadable part of a compressed file is skipped, and the rest is shown.
func TestDamaged(t *testing.T) {
	l := threeFiles(t)
	rotated := l.Path + ".20261122-100001.gz"
	for _, damage := range []int64{5, 30} {
		if err := os.Truncate(rotated, damage); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := l.Copy(t.Context(), &out, Options{}); err != nil ||
			!strings.HasSuffix(out.String(), "two\nthree\nfour\nfive\nsix\n") {
			t.Errorf("cut off at %d: %v %q", damage, err, out.String())
		}
		l = threeFiles(t)
		rotated = l.Path + ".20261122-100001.gz"
	}
}

// Other things than files are refused without blocking.
func TestNoFile(t *testing.T) {
	dir := t.TempDir()
	l := Log{Path: filepath.Join(dir, "0.log"), Running: func() bool { return true }}
	if err := l.Copy(t.Context(), &strings.Builder{}, Options{Follow: true}); !os.IsNotExist(err) {
		t.Errorf("no file: %v", err)
	}
	if err := os.Symlink("/dev/zero", l.Path); err != nil {
		t.Fatal(err)
	}
	if err := l.Copy(t.Context(), &strings.Builder{}, Options{}); err == nil {
		t.Error("a link was followed")
	}
}

// screen is written by a follower and read by the test.
type screen struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (s *screen) await(t *testing.T, want string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for s.String() != want {
		if time.Now().After(deadline) {
			t.Fatalf("followed %q, want %q", s.String(), want)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestFollow: new output is shown across rotations, even several between two polls. The follower
// ends with the container.
func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	var ended atomic.Bool
	l := Log{Path: path, Running: func() bool { return !ended.Load() }}
	var out screen
	n, want := 0, ""
	line := func() {
		write(t, path, fmt.Sprintf("%s stdout F line %d\n", at(n), n))
		want += fmt.Sprintf("line %d\n", n)
		n++
	}
	rotate := func() {
		t.Helper()
		to := fmt.Sprintf("%s.20261122-1000%02d", path, n)
		if err := os.Rename(path, to); err != nil {
			t.Fatal(err)
		}
	}
	line()
	done := make(chan error, 1)
	go func() { done <- l.Copy(t.Context(), &out, Options{Follow: true}) }()
	out.await(t, want)
	line()
	out.await(t, want)
	write(t, path, at(n)+" stdout F li") // an unfinished line
	write(t, path, fmt.Sprintf("ne %d\n", n))
	want += fmt.Sprintf("line %d\n", n)
	n++
	out.await(t, want)
	for range 3 {
		rotate()
		line()
	}
	out.await(t, want)
	rotate()
	out.await(t, want)
	line()
	line()
	ended.Store(true)
	if err := <-done; err != nil || out.String() != want {
		t.Errorf("%v %q, want %q", err, out.String(), want)
	}
}

// TestFollowerLeaves: a follower ends when its client disconnects, even if the container runs on.
func TestFollowerLeaves(t *testing.T) {
	l := threeFiles(t)
	l.Running = func() bool { return true }
	ctx, cancel := context.WithCancel(t.Context())
	var out screen
	done := make(chan error, 1)
	go func() { done <- l.Copy(ctx, &out, Options{Follow: true, Tail: ptr.To[int64](1)}) }()
	out.await(t, "five\n") // the line "six" is unfinished
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(at(1) + " stdout P:more a b\n"))
	f.Add([]byte(" stdout F \n"))
	f.Add([]byte(at(1) + " stdlog F x"))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, ok := parse(line)
		if ok && (!bytes.HasSuffix(line, r.content) || r.stream != "stdout" && r.stream != "stderr") {
			t.Errorf("%q: %+v", line, r)
		}
	})
}
