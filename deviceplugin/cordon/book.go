package cordon

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/internal/oneline"
	"github.com/numalet/numalet/internal/strictyaml"
)

// FileName is the name of the book's file in the agent's root.
const FileName = "numalet_device_cordons"

// version is written in the file. A file with another one is not used.
const version = "v1"

// maxFile bounds what is read and written.
const maxFile = 16 << 20

// Book is all cordons, kept in a file. Reading it takes no lock. A nil Book has none.
type Book struct {
	mu   sync.Mutex // held by the writer
	file *files.Record[file]
	now  atomic.Pointer[byResource] // what the file has
}

// byResource has the cordons by resource and id. It is never written to once it is in a Book.
type byResource map[string]map[string]Cordon

// file is the book on the disk.
type file struct {
	Version string   `json:"version"`
	Cordons []Cordon `json:"cordons"`
}

// Open reads the book's file. An unusable file is moved aside: there is an empty book then beside an
// error that is files.ErrUnusable. Any other error comes without a book.
func Open(path string) (*Book, error) {
	all, err := files.Load(path, maxFile, time.Now(), parse)
	if all == nil {
		all = byResource{}
	}
	b := &Book{file: files.NewRecord(path, maxFile, file{})}
	b.now.Store(&all)
	switch {
	case errors.Is(err, files.ErrUnusable):
		return b, fmt.Errorf("the file of cordoned devices cannot be used: %w", err)
	case err != nil:
		return nil, fmt.Errorf("read cordoned devices: %w", err)
	}
	return b, nil
}

// parse is strict: a cordon that was read in part might be of another device.
func parse(raw []byte) (byResource, error) {
	doc, err := strictyaml.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("it %w", err)
	}
	in, err := strictyaml.Strict[file](doc)
	if err != nil {
		return nil, err
	}
	switch {
	case in.Version != version:
		return nil, fmt.Errorf("it is of version %q, and this agent reads %s", in.Version, version)
	case len(in.Cordons) > maxCordons:
		return nil, fmt.Errorf("it has %d cordons; at most %d are read", len(in.Cordons),
			maxCordons)
	}
	all := byResource{}
	for _, c := range in.Cordons {
		if err := c.Check(); err != nil {
			return nil, err
		}
		if all[c.Resource] == nil {
			all[c.Resource] = map[string]Cordon{}
		}
		if _, twice := all[c.Resource][c.ID]; twice {
			return nil, fmt.Errorf("%s %s is in it twice", c.Resource, oneline.Of(c.ID))
		}
		all[c.Resource][c.ID] = c
	}
	return all, nil
}

// Of has the cordons of a resource by id. Never write to it.
func (b *Book) Of(resource string) map[string]Cordon {
	if b == nil {
		return nil
	}
	return (*b.now.Load())[resource]
}

// List is all cordons, by resource and id.
func (b *Book) List() []Cordon {
	if b == nil {
		return nil
	}
	return b.now.Load().list()
}

// Put remembers a cordon, in place of one of the same device, whose Since it keeps. New: there was
// none. On an error nothing has changed.
func (b *Book) Put(c Cordon) (isNew bool, err error) {
	if err := c.Check(); err != nil {
		return false, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	all := *b.now.Load()
	was, known := all[c.Resource][c.ID]
	if known {
		c.Since = was.Since
	} else if all.count() >= maxCordons {
		return false, ErrFull
	}
	of := maps.Clone(all[c.Resource])
	if of == nil {
		of = map[string]Cordon{}
	}
	of[c.ID] = c
	return !known, b.write(all.with(c.Resource, of))
}

// Remove forgets the cordon of a device. Was: there was one. On an error nothing has changed.
func (b *Book) Remove(resource, id string) (was bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := *b.now.Load()
	if _, was = all[resource][id]; !was {
		return false, nil
	}
	of := maps.Clone(all[resource])
	delete(of, id)
	return true, b.write(all.with(resource, of))
}

// write is durable first, and then seen.
func (b *Book) write(next byResource) error {
	err := b.file.Set(file{Version: version, Cordons: next.list()})
	if errors.Is(err, files.ErrTooLarge) {
		return ErrFull
	}
	if err != nil {
		return fmt.Errorf("remember cordoned devices: %w", err)
	}
	b.now.Store(&next)
	return nil
}

func (all byResource) with(resource string, of map[string]Cordon) byResource {
	next := maps.Clone(all)
	if next[resource] = of; len(of) == 0 {
		delete(next, resource)
	}
	return next
}

func (all byResource) count() (n int) {
	for _, of := range all {
		n += len(of)
	}
	return n
}

func (all byResource) list() []Cordon {
	out := make([]Cordon, 0, all.count())
	for _, of := range all {
		out = append(out, slices.Collect(maps.Values(of))...)
	}
	slices.SortFunc(out, func(a, b Cordon) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.ID, b.ID))
	})
	return out
}
