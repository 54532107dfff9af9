package store

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/internal/files"
)

// Bounds of the state file, in bytes. It is written anew before it is twice as long as it was when
// it was begun, and slack more.
const (
	maxState     = 64 << 20 // what all pods hold together
	journalSlack = 1 << 20
	maxFile      = 4 * maxState // what is read: more than is ever written
)

// journal is the state file. A commit costs what it changes: it appends a line, and syncs that. The
// whole state is written to a new file, which takes the old one's place, with the first commit of a
// process, when the file has grown too long, and when it is not what this process left there. So
// only files that this process began are appended to.
type journal struct {
	path string
	file *os.File // nil: the next commit begins a new one
	// begun is the size that the file was begun with, size its size now.
	begun, size int64
	sync        func(*os.File) error // (*os.File).Sync; tests make it fail
}

func newJournal(path string) *journal { return &journal{path: path, sync: (*os.File).Sync} }

// record makes the changes, which led to next, durable. On error the file says what it said before.
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

// longestOf is how long a file may become that was begun with so many bytes. One that was begun with
// more than a state may have, which shrinks, does not grow beyond what can be read.
func longestOf(begun int64) int64 { return 2*min(begun, maxState) + journalSlack }

// durable reports whether the changes have to survive a power cut. That a pod holds nothing any
// more need not: it follows again from there being no such pod. That a plugin has heard of it need
// not either: it hears of it again.
func durable(changes []allocation.Change) bool {
	return slices.ContainsFunc(changes, func(c allocation.Change) bool { return c.Put.UID != "" })
}

// ours reports whether the path is still the file that this process left there.
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

// begin puts a file with nothing but the state in the path's place. A state that shrinks is never
// too large.
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
	// Without it the next commit begins a file as well.
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

// undo takes back what an append left. What of the file is on disk after an error is not known for
// certain, so the next commit begins a new one.
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
