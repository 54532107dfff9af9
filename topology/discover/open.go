package discover

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/numalet/numalet/topology"
)

// fixturePrefix marks a built-in machine where a path is expected.
const fixturePrefix = "fixture:"

// Open reads the machine at path:
//
//   - a ghw snapshot: an archive (.tar.gz), or a directory with an unpacked one
//   - a machine file in our YAML, or a topology.Spec in JSON
//   - "fixture:NAME": a built-in machine
//   - "": this host
func Open(path string) (*topology.Machine, error) {
	if path == "" {
		return Host("/")
	}
	if name, ok := strings.CutPrefix(path, fixturePrefix); ok {
		return Fixture(name)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open machine: %w; "+
			"give a ghw snapshot, a machine file in YAML, or %sNAME (%s)", err, fixturePrefix,
			strings.Join(FixtureNames(), ", "))
	}
	if info.IsDir() {
		return Host(path)
	}
	m, err := openFile(path)
	if err != nil {
		return nil, fmt.Errorf("open machine %s: %w", path, err)
	}
	return m, nil
}

func openFile(path string) (*topology.Machine, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content := bufio.NewReader(f)
	head, err := content.Peek(512)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return openArchive(content)
	case bytes.IndexByte(head, 0) >= 0:
		return nil, errors.New("neither a ghw snapshot (.tar.gz) nor a machine file in YAML; " +
			"make one with: numalet topology snapshot -o FILE")
	}
	return ParseYAML(content)
}

// openArchive unpacks a snapshot to a temporary directory, which it removes before it returns.
func openArchive(r io.Reader) (_ *topology.Machine, err error) {
	dir, err := os.MkdirTemp("", "numalet-snapshot-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := unpack(dir, r); err != nil {
		return nil, fmt.Errorf("unpack snapshot: %w", err)
	}
	root, err := snapshotRoot(dir)
	if err != nil {
		return nil, err
	}
	m, err := Host(root)
	if err != nil {
		// The temporary path means nothing to a reader.
		return nil, errors.New(strings.ReplaceAll(err.Error(), root, "the snapshot's root"))
	}
	return m, nil
}

// snapshotRoot returns the directory of sys: dir itself, or its only subdirectory.
func snapshotRoot(dir string) (string, error) {
	if _, err := os.Stat(filepath.Join(dir, cpuDir)); err == nil {
		return dir, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	if len(entries) == 1 && entries[0].IsDir() {
		return filepath.Join(dir, entries[0].Name()), nil
	}
	return dir, nil
}
