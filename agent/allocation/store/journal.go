package store

import (
	"fmt"
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

// journal is the state file. It is begun anew with the first commit of a process, when the file is
// too long, and when the file is not as this process left it.
type journal struct{ *files.Journal }

func newJournal(path string) *journal { return &journal{files.NewJournal(path)} }

// record makes the changes that lead to next durable. On an error the file is as before.
func (j *journal) record(next allocation.State, changes []allocation.Change) error {
	line, err := encodeChange(next, changes)
	if err != nil {
		return err
	}
	if !j.Takes(line) {
		return j.begin(next, durable(changes))
	}
	return j.Append(line, durable(changes))
}

// durable reports whether the changes have to survive a power cut. Drops do not: after a restart
// the pod does not exist and is dropped again. Settled Owed do not: the plugin is told again.
func durable(changes []allocation.Change) bool {
	return slices.ContainsFunc(changes, func(c allocation.Change) bool { return c.Put.UID != "" })
}

// begin replaces the file by one with just the state. A state that shrinks is never too large, and
// what it grows to can be read.
func (j *journal) begin(next allocation.State, grows bool) error {
	content, err := encode(next)
	if err != nil {
		return err
	}
	if grows && len(content) > maxState {
		return fmt.Errorf("the state would have %d MiB, at most %d MiB are kept: remove pods "+
			"whose device plugins answer at great length", len(content)>>20, maxState>>20)
	}
	return j.Begin(content, int64(2*min(len(content), maxState)+journalSlack))
}
