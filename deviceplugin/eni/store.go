package eni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gofrs/flock"

	"github.com/numalet/numalet/internal/files"
)

const (
	stateFile = "interfaces.json"
	maxState  = 16 << 20
	lockEvery = 200 * time.Millisecond
)

// store keeps the records across restarts.
type store struct{ dir string }

// state is the content of the file.
type state struct {
	Version int `json:"version"`
	// Sum is the CRC-32 of the records, as JSON without spaces. Files of earlier versions have
	// none.
	Sum     *uint32         `json:"sum,omitempty"`
	Records json.RawMessage `json:"records"`
}

// load reads the records. It moves an unreadable file aside and returns none and an
// *asideError: then the interfaces at home are offered as they are.
func (s store) load() (Records, error) {
	path := filepath.Join(s.dir, stateFile)
	raw, err := files.Read(path, maxState)
	if errors.Is(err, fs.ErrNotExist) {
		return Records{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read records of interfaces: %w", err)
	}
	records, problem := decode(raw)
	if problem == nil {
		return records, nil
	}
	aside, err := files.MoveAside(path, time.Now())
	if err != nil {
		return nil, fmt.Errorf("%s has no records of interfaces: %w", path,
			errors.Join(problem, err))
	}
	return Records{}, &asideError{path, aside, problem}
}

// decode parses a file's content.
func decode(raw []byte) (Records, error) {
	var read state
	if err := json.Unmarshal(raw, &read); err != nil {
		return nil, err
	}
	if read.Version != 1 {
		return nil, fmt.Errorf("it is of version %d, not 1", read.Version)
	}
	sum, err := sumOf(read.Records)
	if err != nil {
		return nil, err
	}
	if read.Sum != nil && *read.Sum != sum {
		return nil, errors.New("its records do not match its checksum")
	}
	var records Records
	if err := json.Unmarshal(read.Records, &records); err != nil {
		return nil, err
	}
	for id, r := range records {
		if r.Home.ID != id || r.Home.Link.State.Name == "" || r.Resource == "" ||
			!slices.Contains([]Phase{Free, Handed, Returning}, r.Phase) {
			return nil, fmt.Errorf("the record of interface %q is not valid", id)
		}
	}
	if records == nil {
		return nil, errors.New("it has no records")
	}
	return records, nil
}

func sumOf(records []byte) (uint32, error) {
	var b bytes.Buffer
	err := json.Compact(&b, records)
	return crc32.ChecksumIEEE(b.Bytes()), err
}

// asideError says that the file was useless; the plugin continues without it.
type asideError struct {
	path, aside string
	problem     error
}

func (e *asideError) Error() string {
	return fmt.Sprintf("%s has no records of interfaces that can be read (%v), and is %s now: "+
		"interfaces that containers have are not known until they are back", e.path, e.problem,
		e.aside)
}

func (s store) save(b Records) error {
	records, err := json.Marshal(b)
	var sum uint32
	if err == nil {
		sum, err = sumOf(records)
	}
	var raw []byte
	if err == nil {
		raw, err = json.MarshalIndent(state{1, &sum, records}, "", " ")
	}
	if err == nil {
		err = os.MkdirAll(s.dir, 0o755)
	}
	if err == nil {
		err = files.ReplaceDurably(filepath.Join(s.dir, stateFile), raw)
	}
	if err != nil {
		return fmt.Errorf("write records of interfaces: %w", err)
	}
	return nil
}

// lock waits until no other process holds the folder: that process would overwrite the records, and
// hand out the same interfaces.
func (s store) lock(ctx context.Context, log *log.Logger) (unlock func(), err error) {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder for records of interfaces: %w", err)
	}
	lock := flock.New(s.dir, flock.SetFlag(os.O_RDONLY)) // a directory
	locked, err := lock.TryLock()
	if err == nil && !locked {
		log.Printf("another process keeps records of interfaces in %s: waiting for its end", s.dir)
		_, err = lock.TryLockContext(ctx, lockEvery)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", s.dir, err)
	}
	return func() { _ = lock.Unlock() }, nil // the process ends next
}
