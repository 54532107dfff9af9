package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// started returns a pod whose container c has been prepared for these attempts, and the directory
// of its messages.
func started(t *testing.T, v *Volumes, attempts ...uint32) (*v1.Pod, string) {
	t.Helper()
	pod := podWith()
	pod.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"
	dir := filepath.Join(setUp(t, v, pod), "containers/c")
	for _, attempt := range attempts {
		_, err := v.Containers.Mounts(t.Context(), pod, &pod.Spec.Containers[0], Start{Attempt: attempt})
		if err != nil {
			t.Fatal(err)
		}
	}
	return pod, dir
}

func message(t *testing.T, v *Volumes, pod *v1.Pod, exit Exit) string {
	t.Helper()
	text, err := v.Records.TerminationMessage(pod, &pod.Spec.Containers[0], exit)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestTerminationMessage(t *testing.T) {
	v, _ := newVolumes(t, Config{})
	pod, dir := started(t, v, 0, 1, 2)
	want := []string{"-rw-rw-rw- 00000001", "-rw-rw-rw- 00000002"}
	if got := tree(t, dir); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got files %q, want %q", got, want)
	}
	write(t, dir+"/00000001", "out of paper")
	long := strings.Repeat("x", 100) + strings.Repeat("y", 4096)
	write(t, dir+"/00000002", long)
	for attempt, want := range map[uint32]string{0: "", 1: "out of paper", 2: long[100:], 3: ""} {
		if got := message(t, v, pod, Exit{Attempt: attempt, Code: 1}); got != want {
			t.Errorf("attempt %d: got %q, want %q", attempt, got, want)
		}
	}
	// A second try at creating the same attempt's container starts without a message.
	if _, err := v.Containers.Mounts(t.Context(), pod, &pod.Spec.Containers[0], Start{Attempt: 2}); err != nil {
		t.Fatal(err)
	}
	if got := message(t, v, pod, Exit{Attempt: 2}); got != "" {
		t.Errorf("the new file holds %q", got)
	}
}

func TestTerminationMessageText(t *testing.T) {
	v, _ := newVolumes(t, Config{})
	pod, dir := started(t, v, 0)
	write(t, dir+"/00000000", "bad \xff\xfe bytes")
	if got, want := message(t, v, pod, Exit{}), "bad ? bytes"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Containers cannot make the file a link, but an agent with rights should not rely on it.
func TestTerminationMessageIsARegularFile(t *testing.T) {
	v, _ := newVolumes(t, Config{})
	pod, dir := started(t, v, 0)
	path := dir + "/00000000"
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	symlink(t, "/etc/passwd", path)
	if got, err := v.Records.TerminationMessage(pod, &pod.Spec.Containers[0], Exit{}); err == nil {
		t.Errorf("got %q through a link", got)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := v.Records.TerminationMessage(pod, &pod.Spec.Containers[0], Exit{}); err == nil {
		t.Errorf("got %q from a pipe", got)
	}
}

func TestTerminationMessageOfAdopted(t *testing.T) {
	v, _ := newVolumes(t, Config{})
	pod, dir := started(t, v, 7)
	write(t, dir+"/8f31ab02", "old")
	write(t, dir+"/1b2c3d4e", "adopted")
	write(t, dir+"/notes", "not a message")
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(dir+"/8f31ab02", old, old); err != nil {
		t.Fatal(err)
	}
	if got := message(t, v, pod, Exit{Attempt: 6}); got != "adopted" {
		t.Errorf("got %q", got)
	}
	if got := message(t, v, pod, Exit{Attempt: 7}); got != "" {
		t.Errorf("our own attempt has message %q", got)
	}
}

// A link to another folder, or a hard link, in place of the log is no message.
func TestFallbackToForeignFiles(t *testing.T) {
	v, _ := newVolumes(t, Config{})
	pod, _ := started(t, v, 0)
	pod.Spec.Containers[0].TerminationMessagePolicy = v1.TerminationMessageFallbackToLogsOnError
	logs, other := t.TempDir(), t.TempDir()
	secret := filepath.Join(other, "0.log")
	write(t, secret, "2026-01-02T03:04:05.678901234Z stdout F secret\n")
	if err := errors.Join(os.MkdirAll(filepath.Join(logs, "pod/hard"), 0o755),
		os.Link(secret, filepath.Join(logs, "pod/hard/0.log")),
		os.Symlink(other, filepath.Join(logs, "pod/soft"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"hard", "soft"} {
		exit := Exit{Code: 1, LogPath: filepath.Join(logs, "pod", name, "0.log")}
		if got, err := v.Records.TerminationMessage(pod, &pod.Spec.Containers[0], exit); err == nil ||
			strings.Contains(got, "secret") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestFallbackToLogs(t *testing.T) {
	logged := func(lines ...string) string {
		return "2026-01-02T03:04:05.678901234Z stdout " + strings.Join(lines,
			"\n2026-01-02T03:04:05.678901234Z stderr ") + "\n"
	}
	var many, wide []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("F line %d", i))
		wide = append(wide, "F "+strings.Repeat("x", 2000))
	}
	var last80 strings.Builder
	for i := 20; i < 100; i++ {
		fmt.Fprintf(&last80, "line %d\n", i)
	}
	const fallback, file = v1.TerminationMessageFallbackToLogsOnError, v1.TerminationMessageReadFile
	tests := []struct {
		name    string
		policy  v1.TerminationMessagePolicy
		code    int32
		message string
		log     string
		want    string
	}{
		{"failed", fallback, 1, "", logged("F one", "F two"), "one\ntwo\n"},
		{"succeeded", fallback, 0, "", logged("F one"), ""},
		{"wrote a message", fallback, 1, "mine", logged("F one"), "mine"},
		{"other policy", file, 1, "", logged("F one"), ""},
		{"partial lines", fallback, 1, "", logged("P one", "P:x two", "F three", "F"),
			"onetwothree\n"},
		{"empty lines", fallback, 1, "", logged("F ", "F x"), "\nx\n"},
		{"80 lines", fallback, 1, "", logged(many...), last80.String()},
		{"2048 bytes", fallback, 1, "", logged(wide...),
			strings.Repeat("x", 46) + "\n" + strings.Repeat("x", 2000) + "\n"},
		{"no log", fallback, 1, "", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, _ := newVolumes(t, Config{})
			pod, dir := started(t, v, 0)
			write(t, dir+"/00000000", tt.message)
			log := filepath.Join(t.TempDir(), "0.log")
			if tt.log != "" {
				write(t, log, tt.log)
			}
			pod.Spec.Containers[0].TerminationMessagePolicy = tt.policy
			if got := message(t, v, pod, Exit{Code: tt.code, LogPath: log}); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}
