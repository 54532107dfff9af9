package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
)

// Journal is a file that begins with a line for a state and grows by lines, each a change of it: a
// change costs what it changes. It has one owner. The file is begun anew before it exceeds twice
// its first line and a slack, and if it is not as this process left it.
type Journal struct {
	// Path is the file's. Sync is (*os.File).Sync; tests make it fail.
	Path   string
	Sync   func(*os.File) error
	Bounds Bounds

	file *os.File // nil: the file is to be begun
	// size is the present size, longest what it may have.
	size, longest int64
}

// Bounds of a Journal's file, in bytes: of its first line, and beyond twice that.
type Bounds struct{ First, Slack int }

// NewJournal returns a journal whose file is to be begun.
func NewJournal(path string, b Bounds) *Journal {
	return &Journal{Path: path, Sync: (*os.File).Sync, Bounds: b}
}

// Record appends the line of a change. If the file does not take it, Record begins the file with
// the line of the state after the change, which whole returns. A change that is not durable
// survives the end of the process, and a power cut only if a durable one follows. On an error the
// file is as before.
func (j *Journal) Record(line []byte, durable bool, whole func() ([]byte, error)) error {
	if j.takes(line) {
		return j.append(line, durable)
	}
	content, err := whole()
	if err != nil {
		return err
	}
	return j.Begin(content)
}

// takes reports whether the line can be appended: the file is as this process left it, and has
// room.
func (j *Journal) takes(line []byte) bool {
	if j.file == nil || j.size+int64(len(line)) > j.longest {
		return false
	}
	own, err := j.file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(j.Path)
	return err == nil && os.SameFile(own, there) && there.Size() == j.size
}

// Begin replaces the file durably by one with that first line. A line longer than its bound is
// taken too: the owner refuses it, unless the state only shrinks.
func (j *Journal) Begin(content []byte) error {
	j.Close()
	if err := ReplaceDurably(j.Path, content); err != nil {
		return err
	}
	j.size = int64(len(content))
	j.longest = int64(2*min(len(content), j.Bounds.First) + j.Bounds.Slack)
	// On an error file is nil, and the next change begins a file again.
	j.file, _ = Open(j.Path, os.O_WRONLY|os.O_APPEND)
	return nil
}

func (j *Journal) append(line []byte, durable bool) error {
	_, err := j.file.Write(line)
	if err == nil && durable {
		err = j.Sync(j.file)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", j.Path, errors.Join(err, j.undo()))
	}
	j.size += int64(len(line))
	return nil
}

// undo removes what a failed append left. As it is uncertain what is on disk, the next change
// begins a new file.
func (j *Journal) undo() error {
	err := j.file.Truncate(j.size)
	j.Close()
	return err
}

// Close ends the use of the file. The next change begins it anew.
func (j *Journal) Close() {
	if j.file != nil {
		_ = j.file.Close() // what had to be synced was
		j.file = nil
	}
}

// Line is a line of a Journal. The checksum is the CRC-32 (IEEE) of the bytes of Data.
type Line struct {
	Version  int             `json:"version"`
	Checksum uint32          `json:"checksum"`
	Data     json.RawMessage `json:"data"`
}

// Sum is the checksum that the line should have.
func (l Line) Sum() uint32 { return crc32.ChecksumIEEE(l.Data) }

// EncodeLine returns a Line with the value as data, beginning with what header says, such as
// `"version":3,`. The JSON encoder would parse all data once more.
func EncodeLine(header string, value any) ([]byte, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	line := make([]byte, 0, len(data)+64)
	line = fmt.Appendf(line, `{%s"checksum":%d,"data":`, header, crc32.ChecksumIEEE(data))
	return append(append(line, data...), "}\n"...), nil
}
