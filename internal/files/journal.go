package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
)

// Journal is a file that begins with a state and grows by lines, each a change of it: a change costs
// what it changes. It has one owner, who begins the file anew when it takes no more. A process appends
// only to files that it began.
type Journal struct {
	// Path is the file's. Sync is (*os.File).Sync; tests make it fail.
	Path string
	Sync func(*os.File) error

	file *os.File // nil: the file is to be begun
	// size is the present size, longest what it may have.
	size, longest int64
}

// NewJournal returns a journal whose file is to be begun.
func NewJournal(path string) *Journal { return &Journal{Path: path, Sync: (*os.File).Sync} }

// Takes reports whether the line can be appended: the file is as this process left it, and has room.
func (j *Journal) Takes(line []byte) bool {
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

// Begin replaces the file durably by one with that content, which then may grow to a size of longest.
func (j *Journal) Begin(content []byte, longest int64) error {
	j.Close()
	if err := ReplaceDurably(j.Path, content); err != nil {
		return err
	}
	j.size, j.longest = int64(len(content)), longest
	// On an error file is nil, and the next change begins a file again.
	j.file, _ = Open(j.Path, os.O_WRONLY|os.O_APPEND)
	return nil
}

// Append adds a line that Takes. One that is not durable survives the end of the process, and a power
// cut only if a durable one follows. On an error the file is as before.
func (j *Journal) Append(line []byte, durable bool) error {
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

// Size is the file's.
func (j *Journal) Size() int64 { return j.size }

// undo removes what a failed Append left. As it is uncertain what is on disk, the next change begins
// a new file.
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

// EncodeLine returns a JSON object in a line: what header says, such as `"version":3,`, the CRC-32 (IEEE)
// of the value's bytes as checksum, and the value as data. The JSON encoder would parse all data once more.
func EncodeLine(header string, value any) ([]byte, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	line := make([]byte, 0, len(data)+64)
	line = fmt.Appendf(line, `{%s"checksum":%d,"data":`, header, crc32.ChecksumIEEE(data))
	return append(append(line, data...), "}\n"...), nil
}
