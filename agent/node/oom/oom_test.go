package oom

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const kill = "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=c,mems_allowed=0-1,%s" +
	"task_memcg=/kubepods/podx/y,task=%s,pid=%d,uid=0\n"

func record(head, how, task string, pid int) string {
	return head + ";" + fmt.Sprintf(kill, how, task, pid)
}

func TestParse(t *testing.T) {
	for text, want := range map[string]victim{
		record("6,1,2,-", "global_oom,", "java", 42):                 {"java", 42},
		record("6,1,2,-,caller=T1", "global_oom,", "a,pid=7,b", 42):  {"a,pid=7,b", 42},
		record("6,1,2,-", "oom_memcg=/kubepods/podx,", "java", 42):   {},
		record("6,1,2,-", "oom_memcg=/global_oom/x,", "java", 42):    {},
		record("14,1,2,-", "global_oom,", "java", 42):                {}, // a program wrote it
		record("x,1,2,-", "global_oom,", "java", 42):                 {},
		"6,1,2,-;oom-kill:constraint=CONSTRAINT_NONE,global_oom\n":   {},
		"6,1,2,-;oom-kill:constraint=X,global_oom,task=a,pid=z,uid=": {},
		"6,1,2,-;oom-kill:constraint=X,global_oom,task=a\n":          {},
		"6,1,2,-;Out of memory: Killed process 42 (java)\n":          {},
		"": {},
	} {
		got, ok := parse(text)
		if ok != (want.pid > 0) || ok && got != want {
			t.Errorf("%q: %+v, %t, want %+v", text, got, ok, want)
		}
	}
}

// TestRun: a kill makes an event of the node; Run ends with its context.
func TestRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kmsg")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	kernel, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer kernel.Close()
	reported := make(chan string, 2)
	w := Watcher{Log: path, Tell: func(eventType, reason, message string) {
		reported <- eventType + " " + reason + ": " + message
	}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	if _, err := kernel.WriteString(record("6,1,2,-", "global_oom,", "java", 42)); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-reported:
		if want := "Warning SystemOOM: System OOM encountered, victim process: java, pid: 42"; got != want {
			t.Errorf("told %q, want %q", got, want)
		}
	case <-time.After(time.Minute):
		t.Fatal("nothing is told")
	}
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it goes on")
	}
	// Kills before this run, of which an earlier run told, are not told again.
	w.Log = filepath.Join(t.TempDir(), "earlier")
	if err := os.WriteFile(w.Log, []byte(record("6,1,2,-", "global_oom,", "java", 42)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.Run(t.Context()); err != nil || len(reported) > 0 {
		t.Errorf("of an earlier kill it tells %d times, %v", len(reported), err)
	}
	w.Log = filepath.Join(t.TempDir(), "none")
	if err := w.Run(t.Context()); err != nil {
		t.Errorf("without a log: %v", err)
	}
}
