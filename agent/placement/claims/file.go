package claims

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/internal/oneline"
	"github.com/numalet/numalet/internal/strictyaml"
)

// FileName is the name of the file of records in the agent's root. It is a journal: a line with all
// records, then one for each change.
const FileName = "numalet_claims"

const (
	// The agent writes version, and reads oldVersion, which has no lines, too.
	version, oldVersion = "v2", "v1"
	// maxFile bounds the first line, maxRead what is read, which is more than is ever written.
	maxFile, maxRead = 16 << 20, 64 << 20
	// journalSlack bytes beyond twice its first line, the file is begun anew.
	journalSlack = 256 << 10
)

// file is the book in the first line.
type file struct {
	Version string    `json:"version"`
	BootID  string    `json:"bootID"`
	Claims  []*Record `json:"claims"`
}

// fileChange is a further line: records that are there from now on, and claims without one.
type fileChange struct {
	Put  []*Record   `json:"put,omitempty"`
	Drop []claimName `json:"drop,omitempty"`
}

type claimName struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// strict decodes a document that has known fields only, each once.
func strict[T any](raw []byte) (in T, err error) {
	doc, err := strictyaml.Parse(raw)
	if err != nil {
		return in, fmt.Errorf("it %w", err)
	}
	return strictyaml.Strict[T](doc)
}

// parse reads the file. It is strict: a record that was read in part might be another driver's.
func parse(raw []byte) (file, error) {
	in, err := parseLines(raw)
	if err != nil {
		return file{}, err
	}
	known := map[types.NamespacedName]bool{}
	for _, r := range in.Claims {
		if err := r.check(); err != nil {
			return file{}, err
		}
		if known[r.key()] {
			return file{}, fmt.Errorf("%s is in it twice", oneline.Of(r.key().String()))
		}
		known[r.key()] = true
	}
	return in, nil
}

// parseLines reads the first line and applies the others. Lines at the end that cannot be read were
// being written when the machine lost its power, or the agent its life.
func parseLines(raw []byte) (in file, err error) {
	if !bytes.HasPrefix(raw, []byte(`{"checksum":`)) {
		in, err = strict[file](raw)
		return in, cmp.Or(err, in.checkVersion(oldVersion))
	}
	first, rest, _ := bytes.Cut(raw, []byte("\n"))
	if in, err = parseLine[file](first); err != nil {
		return in, err
	}
	if err := in.checkVersion(version); err != nil {
		return in, err
	}
	var unread error
	for line := range bytes.Lines(rest) {
		c, err := parseLine[fileChange](line)
		switch {
		case err != nil:
			unread = cmp.Or(unread, err)
		case unread != nil:
			return in, unread
		default:
			in.apply(c)
		}
	}
	return in, nil
}

func parseLine[T any](raw []byte) (value T, err error) {
	var line files.Line
	if err := json.Unmarshal(raw, &line); err != nil {
		return value, fmt.Errorf("it cannot be read: %w", err)
	}
	if sum := line.Sum(); sum != line.Checksum {
		return value, fmt.Errorf("a checksum is %d, and that of its data %d", line.Checksum, sum)
	}
	return strict[T](line.Data)
}

func (f *file) checkVersion(want string) error {
	if f.Version != want {
		return fmt.Errorf("it is of version %q, which this agent does not read", f.Version)
	}
	return nil
}

func (f *file) apply(c fileChange) {
	goes := map[types.NamespacedName]bool{}
	for _, key := range c.Drop {
		goes[types.NamespacedName(key)] = true
	}
	for _, r := range c.Put {
		if r != nil {
			goes[r.key()] = true
		}
	}
	f.Claims = slices.DeleteFunc(f.Claims, func(r *Record) bool { return r != nil && goes[r.key()] })
	f.Claims = append(f.Claims, c.Put...)
}

// encodeChange returns the line of a change; records that are dropped are nil.
func encodeChange(changed records) ([]byte, error) {
	var c fileChange
	var put records = map[types.NamespacedName]*Record{}
	for key, r := range changed {
		if r == nil {
			c.Drop = append(c.Drop, claimName(key))
			continue
		}
		put[key] = r
	}
	c.Put = put.list()
	slices.SortFunc(c.Drop, func(a, b claimName) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return files.EncodeLine("", c)
}

// check says what is wrong with a record that was read.
func (r *Record) check() error {
	if r == nil || r.Namespace == "" || r.Name == "" || r.UID == "" {
		return errors.New("it has a claim without a namespace, a name or a UID")
	}
	stages := []Stage{StageUnsent, StagePreparing, StagePrepared, StageUnpreparing}
	for _, d := range r.Drivers {
		if d.Name == "" || !slices.Contains(stages, d.Stage) {
			return fmt.Errorf("%s has driver %q in stage %q", oneline.Of(r.key().String()), d.Name,
				d.Stage)
		}
	}
	return nil
}
