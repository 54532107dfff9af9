package store

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/internal/files"
)

// Bounds of the state file in bytes. The file is rewritten before it exceeds twice its initial size
// plus journalSlack.
const (
	maxState     = 64 << 20 // the first line
	journalSlack = 1 << 20
	maxFile      = 4 * maxState // what is read, more than is ever written
)

// journal is the state file. A commit appends a line and syncs it, so it costs what it changes.
// The journal writes the whole state to a new file, which replaces the old one, with the first
// commit of a process, when the file is too long, and when the file is not as this process left
// it. So the process appends only to files that it began.
type journal struct {
	path string
	file *os.File // nil: the next commit begins a new one
	// begun is the initial size of the file, size its present size.
	begun, size int64
	sync        func(*os.File) error // (*os.File).Sync; tests make it fail
}

func newJournal(path string) *journal { return &journal{path: path, sync: (*os.File).Sync} }

// record makes the changes that lead to next durable. On an error the file is as before.
func (j *journal) record(next allocation.State, changes []allocation.Change) error {
	line, err := encodeChange(next, changes)
	if err != nil {
		return err
	}
	if !j.ours() || j.size+int64(len(line)) > longestOf(j.begun) {
		return j.begin(next, durable(changes))
	}
	if err := j.append(line, durable(changes)); err != nil {
		return fmt.Errorf("write %s: %w", j.path, errors.Join(err, j.undo()))
	}
	j.size += int64(len(line))
	return nil
}

// longestOf returns the size limit of a file that began with so many bytes. A state that is too
// large can still be written if it shrinks; its file does not grow beyond what can be read.
func longestOf(begun int64) int64 { return 2*min(begun, maxState) + journalSlack }

// durable reports whether the changes have to survive a power cut. Drops do not: after a restart
// the pod does not exist and is dropped again. Settled Owed do not: the plugin is told again.
func durable(changes []allocation.Change) bool {
	return slices.ContainsFunc(changes, func(c allocation.Change) bool { return c.Put.UID != "" })
}

// ours reports whether the file at the path is as this process left it.
func (j *journal) ours() bool {
	if j.file == nil {
		return false
	}
	own, err := j.file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(j.path)
	return err == nil && os.SameFile(own, there) && there.Size() == j.size
}

// begin replaces the file by one with just the state. A state that shrinks is never too large.
func (j *journal) begin(next allocation.State, grows bool) error {
	content, err := encode(next)
	if err != nil {
		return err
	}
	if grows && len(content) > maxState {
		return fmt.Errorf("the state would have %d MiB, at most %d MiB are kept: remove pods "+
			"whose device plugins answer at great length", len(content)>>20, maxState>>20)
	}
	j.close()
	if err := files.ReplaceDurably(j.path, content); err != nil {
		return err
	}
	j.begun, j.size = int64(len(content)), int64(len(content))
	// On an error file is nil, and the next commit begins a file again.
	j.file, _ = files.Open(j.path, os.O_WRONLY|os.O_APPEND)
	return nil
}

func (j *journal) append(line []byte, durable bool) error {
	if _, err := j.file.Write(line); err != nil {
		return err
	}
	if !durable {
		return nil
	}
	return j.sync(j.file)
}

// undo removes what a failed append left. As it is uncertain what is on disk, the next commit
// begins a new file.
func (j *journal) undo() error {
	err := j.file.Truncate(j.size)
	j.close()
	return err
}

func (j *journal) close() {
	if j.file != nil {
		_ = j.file.Close() // it was synced
		j.file = nil
	}
}
