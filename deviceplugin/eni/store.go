package eni

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/numalet/numalet/topology/files"
)

const (
	stateFile = "interfaces.json"
	maxState  = 16 << 20
)

// store keeps the book across restarts.
type store struct{ dir string }

// state is what the file has.
type state struct {
	Version int  `json:"version"`
	Records Book `json:"records"`
}

// load reads the book. A file that cannot be read as one is moved aside: the interfaces at home are
// offered then as they are.
func (s store) load() (Book, error) {
	path := filepath.Join(s.dir, stateFile)
	raw, err := files.Read(path, maxState)
	if errors.Is(err, fs.ErrNotExist) {
		return Book{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read records of interfaces: %w", err)
	}
	var read state
	if err := json.Unmarshal(raw, &read); err == nil && read.Version == 1 && read.Records != nil {
		return read.Records, nil
	}
	aside, err := files.MoveAside(path, time.Now())
	if err != nil {
		return nil, fmt.Errorf("%s has no records of interfaces: %w", path, err)
	}
	return Book{}, &asideError{path, aside}
}

// asideError says that the file was of no use, which is no reason not to go on.
type asideError struct{ path, aside string }

func (e *asideError) Error() string {
	return fmt.Sprintf("%s has no records of interfaces that can be read, and is %s now: "+
		"interfaces that containers have are not known until they are back", e.path, e.aside)
}

func (s store) save(b Book) error {
	raw, err := json.MarshalIndent(state{1, b}, "", " ")
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
