// Package oom reports processes that the kernel's OOM killer ends because the whole machine is out
// of memory. A process that exceeds the limit of its cgroup is its container's affair: the runtime
// reports that as OOMKilled.
package oom

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"golang.org/x/sys/unix"

	"github.com/numalet/numalet/internal/oneline"
)

// KernelLog is the kernel's log, readable by root.
const KernelLog = "/dev/kmsg"

// maxRecord is longer than any record of the kernel's log, which a read returns as a whole
// (Documentation/ABI/testing/dev-kmsg).
const maxRecord = 16 << 10

// Watcher follows the kernel's log.
type Watcher struct {
	Log string // KernelLog, except in tests
	// Tell receives events of the node.
	Tell func(eventType, reason, message string)
}

// Run reports kills until ctx ends. If the log cannot be read, it reports nothing, and the agent
// goes on.
func (w Watcher) Run(ctx context.Context) error {
	log := klog.FromContext(ctx)
	f, err := os.OpenFile(w.Log, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		log.Info("OOM kills are not reported", "err", err)
		return nil
	}
	defer func() { _ = f.Close() }()
	_, _ = f.Seek(0, io.SeekEnd) // earlier records were reported, or are too old to report
	defer context.AfterFunc(ctx, func() { _ = f.Close() })()
	record := make([]byte, maxRecord)
	for {
		n, err := f.Read(record)
		switch {
		case errors.Is(err, unix.EPIPE): // records were overwritten before they were read
			continue
		case ctx.Err() != nil:
			return nil
		case err != nil:
			log.Info("OOM kills are no longer reported", "err", err)
			return nil
		}
		if v, ok := parse(string(record[:n])); ok {
			w.Tell(v1.EventTypeWarning, "SystemOOM", fmt.Sprintf(
				"System OOM encountered, victim process: %s, pid: %d", v.process, v.pid))
		}
	}
}

// victim is a killed process.
type victim struct {
	process string
	pid     int
}

// parse parses a record, "PRIORITY,NUMBER,TIME,FLAGS;TEXT". Since 5.0 the kernel logs one record
// for each kill, with global_oom if the machine was out of memory:
//
//	oom-kill:constraint=CONSTRAINT_NONE,...,global_oom,task_memcg=/a,task=NAME,pid=1,uid=0
//
// Programs of root can write to the log too. Their facility, the bits of the priority above the
// lowest three, is not zero, which is the kernel's.
func parse(record string) (v victim, ok bool) {
	head, text, _ := strings.Cut(record, ";")
	priority, _, _ := strings.Cut(head, ",")
	if p, err := strconv.Atoi(priority); err != nil || p>>3 != 0 {
		return v, false
	}
	text, _, _ = strings.Cut(text, "\n")
	rest, ok := strings.CutPrefix(text, "oom-kill:constraint=")
	if !ok {
		return v, false
	}
	// A process chooses its name, which may contain commas, so the last match counts.
	constraint, task, ok := strings.Cut(rest, ",task=")
	if !ok || !strings.Contains(constraint+",", ",global_oom,") {
		return v, false
	}
	at := strings.LastIndex(task, ",pid=")
	if at < 0 {
		return v, false
	}
	pid, _, _ := strings.Cut(task[at+len(",pid="):], ",")
	v.process = oneline.Of(task[:at])
	v.pid, _ = strconv.Atoi(pid)
	return v, v.pid > 0
}
