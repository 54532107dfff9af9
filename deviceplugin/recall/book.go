package recall

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/internal/oneline"
	"github.com/numalet/numalet/topology"
)

// FileName is the name of the book's file in the agent's root.
const FileName = "numalet_device_lists"

// version is that of the file; one of another version cannot be used.
const version = "v1"

// maxFile bounds what is read and written.
const maxFile = 64 << 20

// Resource is the last state of a resource's plugin.
type Resource struct {
	Name string `json:"resource"`
	// Gone is when the plugin was last there; zero: it is there.
	Gone time.Time `json:"gone,omitzero"`
	// PreStart: it wants PreStartContainer before each start of a container.
	PreStart bool  `json:"preStart,omitempty"`
	Sets     []Set `json:"sets,omitempty"`
}

// Set are devices that are alike.
type Set struct {
	Healthy bool `json:"healthy,omitempty"`
	// NoNodes: the devices have a topology that names no node.
	NoNodes bool     `json:"noNodes,omitempty"`
	Nodes   Nodes    `json:"nodes,omitzero"`
	IDs     []string `json:"ids"`
	// PCI are the devices' addresses; empty, or as many as IDs.
	PCI []string `json:"pci,omitempty"`
}

// Nodes are NUMA nodes; in the file a list such as 0-1.
type Nodes struct{ topology.NodeSet }

// IsZero serves omitzero.
func (n Nodes) IsZero() bool { return n.IsEmpty() }

// MarshalText implements encoding.TextMarshaler.
func (n Nodes) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *Nodes) UnmarshalText(text []byte) (err error) {
	n.NodeSet, err = topology.ParseNodeSet(string(text))
	return err
}

// Book is the file. Only its one owner calls its methods.
type Book struct {
	path string
	// left are the resources that an earlier run left.
	left []Resource
}

// file is the book on the disk. The time of its last change is when its owner was last there.
type file struct {
	Version   string            `json:"version"`
	Resources []json.RawMessage `json:"resources"`
}

// Open reads the book's file. An unusable file is moved aside: there is an empty book then beside an
// error that is files.ErrUnusable. Any other error comes without a book.
func Open(path string) (*Book, error) {
	b := &Book{path: path}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err == nil {
		b.left, err = files.Load(path, maxFile, time.Now(), parse)
	}
	switch {
	case errors.Is(err, files.ErrUnusable):
		return b, fmt.Errorf("the file of what device plugins listed cannot be used: %w", err)
	case err != nil:
		return nil, fmt.Errorf("read what device plugins listed: %w", err)
	}
	b.wereThere(info.ModTime(), time.Now())
	return b, nil
}

// parse is strict: a list that was read in part might have more healthy devices than there are.
func parse(raw []byte) ([]Resource, error) {
	var in struct {
		Version   string     `json:"version"`
		Resources []Resource `json:"resources"`
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&in); err != nil {
		return nil, fmt.Errorf("it is not JSON of its kind: %w", err)
	}
	if in.Version != version {
		return nil, fmt.Errorf("it is of version %s, and this agent reads %s",
			oneline.Of(in.Version), version)
	}
	seen := map[string]bool{}
	for _, r := range in.Resources {
		if r.Name == "" || seen[r.Name] {
			return nil, fmt.Errorf("resource %q is in it twice, or has no name", oneline.Of(r.Name))
		}
		seen[r.Name] = true
	}
	return in.Resources, nil
}

// wereThere has plugins that were there go with the run that wrote the book. No clock says that
// this is yet to be.
func (b *Book) wereThere(seen, now time.Time) {
	for i := range b.left {
		r := &b.left[i]
		if r.Gone.IsZero() {
			r.Gone = seen
		}
		if r.Gone.After(now) {
			r.Gone = now
		}
	}
}

// Left are the resources that an earlier run left, each with the time when its plugin was last
// there. A nil Book has none.
func (b *Book) Left() []Resource {
	if b == nil {
		return nil
	}
	return b.left
}

// Record keeps a value in the book's file in the form of the resources that follow from it; the zero
// value stands for what the file has. The devices of resources that have too many for the file are
// not remembered: the resource then has none while its plugin is away.
func Record[T any](b *Book, resources func(T) []Resource) *files.Record[T] {
	var none T
	return files.NewRecordOf(b.path, maxFile, none, func(value T) ([]byte, error) {
		encoded, err := fitting(resources(value), maxFile-1024)
		if err != nil {
			return nil, err
		}
		raw, err := json.Marshal(file{Version: version, Resources: encoded})
		return append(raw, '\n'), err
	})
}

// fitting encodes resources into so many bytes: the longest go without their devices.
func fitting(all []Resource, room int) ([]json.RawMessage, error) {
	out, short := make([]json.RawMessage, len(all)), make([]json.RawMessage, len(all))
	order := make([]int, len(all)) // the shortest first
	for i, r := range all {
		var err, shortErr error
		out[i], err = json.Marshal(r)
		short[i], shortErr = json.Marshal(Resource{Name: r.Name, Gone: r.Gone, PreStart: r.PreStart})
		if err := errors.Join(err, shortErr); err != nil {
			return nil, err
		}
		order[i], room = i, room-len(short[i])-1
	}
	slices.SortStableFunc(order, func(a, b int) int { return len(out[a]) - len(out[b]) })
	for _, i := range order {
		if room -= len(out[i]) - len(short[i]); room < 0 {
			out[i] = short[i]
		}
	}
	return out, nil
}

// Touch remembers that the present plugins were there until now. It need not survive a power cut.
func (b *Book) Touch(now time.Time) error {
	if err := os.Chtimes(b.path, now, now); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remember when device plugins were there: %w", err)
	}
	return nil
}
