package store

import (
	"fmt"
	"slices"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/internal/files"
)

// Bounds of the state file in bytes.
const (
	maxState     = 64 << 20 // the first line
	journalSlack = 1 << 20
	maxFile      = 4 * maxState // what is read, more than is ever written
)

func newJournal(path string) *files.Journal {
	return files.NewJournal(path, files.Bounds{First: maxState, Slack: journalSlack})
}

// record makes the changes that lead to next durable. On an error the file is as before.
func record(j *files.Journal, next allocation.State, changes []allocation.Change) error {
	line, err := encodeChange(next, changes)
	if err != nil {
		return err
	}
	lasts := durable(changes)
	return j.Record(line, lasts, func() ([]byte, error) { return begin(next, lasts, j.Bounds.First) })
}

// durable reports whether the changes have to survive a power cut. Drops do not: after a restart
// the pod does not exist and is dropped again. Releases that were heard of do not: the plugin is told again.
func durable(changes []allocation.Change) bool {
	return slices.ContainsFunc(changes, func(c allocation.Change) bool { return c.Put.UID != "" })
}

// begin returns the first line of a file with just the state. A state that shrinks is never too
// large, and what it grows to can be read.
func begin(next allocation.State, grows bool, most int) ([]byte, error) {
	content, err := encode(next)
	if err == nil && grows && len(content) > most {
		err = fmt.Errorf("the state would have %d MiB, at most %d MiB are kept: remove pods "+
			"whose device plugins answer at great length", len(content)>>20, most>>20)
	}
	return content, err
}
