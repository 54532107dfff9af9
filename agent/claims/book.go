package claims

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/internal/oneline"
	"github.com/numalet/numalet/internal/strictyaml"
)

// FileName is the name of the file of records in the agent's root.
const FileName = "numalet_claims"

const (
	// version is that of the file; one of another version cannot be used.
	version = "v1"
	// maxFile bounds what is read and written.
	maxFile = 16 << 20
)

// ErrUnusable: a file of claims could not be used and was moved aside.
var ErrUnusable = errors.New("the record of resource claims cannot be used")

// errFull: a claim has no room in the file.
var errFull = fmt.Errorf("the record of resource claims is full (%d MiB): forget claims that no "+
	"pod uses with numalet claim forget", maxFile>>20)

// records has all claims by namespace and name. It is never written to once it is in a book.
type records map[types.NamespacedName]*Record

// list returns the records by namespace and name.
func (all records) list() []*Record {
	return slices.SortedFunc(maps.Values(all), func(a, b *Record) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
}

// of returns the records of which the pod is a user, also one that left.
func (all records) of(uid types.UID) (out []*Record) {
	for _, r := range all.list() {
		if slices.ContainsFunc(r.Users, func(u User) bool { return u.UID == uid }) {
			out = append(out, r)
		}
	}
	return out
}

// page is all records at one time, never written to.
type page struct {
	records
	users map[types.UID][]*Record // as records.of
}

func newPage(all records) *page {
	p := &page{records: all, users: map[types.UID][]*Record{}}
	for _, r := range all.list() {
		for _, u := range r.Users {
			if own := p.users[u.UID]; len(own) == 0 || own[len(own)-1] != r {
				p.users[u.UID] = append(own, r)
			}
		}
	}
	return p
}

// file is the book on the disk.
type file struct {
	Version string    `json:"version"`
	BootID  string    `json:"bootID"`
	Claims  []*Record `json:"claims"`
}

// book is all records, kept in a file. Reading it takes no lock.
type book struct {
	bootID string
	// settled hears of pods that have no claim any more; nil: nobody does. It must not block.
	settled func(types.UID)
	now     atomic.Pointer[page] // what the file has
	export  *export

	queue   sync.Mutex // guards waiting
	waiting []*edit

	mu   sync.Mutex // held by the one who writes
	file *files.Record[file]
}

// edit is a change that waits to be written, beside others that come at the same time.
type edit struct {
	change func(*draft) error
	done   bool
	err    error
}

// draft is what an edit makes of the records.
type draft struct {
	base  records
	edits records // nil: the record is dropped
}

func (d *draft) get(key types.NamespacedName) *Record {
	if r, edited := d.edits[key]; edited {
		return r
	}
	return d.base[key]
}

// all yields the names of all claims, before and after the edits.
func (d *draft) all() iter.Seq[types.NamespacedName] {
	return func(yield func(types.NamespacedName) bool) {
		for key := range d.edits {
			if !yield(key) {
				return
			}
		}
		for key := range d.base {
			if _, edited := d.edits[key]; !edited && !yield(key) {
				return
			}
		}
	}
}

// step takes an event for a claim.
func (d *draft) step(key types.NamespacedName, e Event) error {
	was := d.get(key)
	next, err := Step(was, e)
	if err != nil || next == nil && was == nil {
		return err
	}
	d.edits[key] = next
	return nil
}

// openBook reads the file. One that cannot be used is moved aside: the book is empty then, beside an
// error that is ErrUnusable. Any other error comes without a book.
func openBook(dir, bootID string) (*book, error) {
	path := filepath.Join(dir, FileName)
	in, err := files.Load(path, maxFile, time.Now(), parse)
	b := &book{bootID: bootID, file: files.NewRecord(path, maxFile, in)}
	var unusable *files.Unusable
	if err != nil && !errors.As(err, &unusable) {
		return nil, fmt.Errorf("read resource claims: %w", err)
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	all := records{}
	for _, r := range in.Claims {
		if in.BootID != bootID { // it is written with the next change
			r, _ = Step(r, Event{Kind: Rebooted, At: time.Now()})
		}
		all[r.key()] = r
	}
	b.now.Store(newPage(all))
	return b, err
}

// strict decodes a document that has known fields only, each once.
func strict[T any](raw []byte) (in T, err error) {
	doc, err := strictyaml.Parse(raw)
	if err != nil {
		return in, fmt.Errorf("it %w", err)
	}
	found := strictyaml.Check[T](doc)
	for _, wrong := range []string{
		doc.Duplicates, found.Unknown.String(), found.Wrong.String(),
	} {
		if wrong != "" {
			return in, errors.New(wrong)
		}
	}
	return in, doc.Decode(&in)
}

// parse is strict: a record that was read in part might be another driver's.
func parse(raw []byte) (in file, err error) {
	if in, err = strict[file](raw); err != nil {
		return in, err
	}
	if in.Version != version {
		return in, fmt.Errorf("it is of version %q, and this agent reads %s", in.Version, version)
	}
	known := map[types.NamespacedName]bool{}
	for _, r := range in.Claims {
		if err := r.check(); err != nil {
			return in, err
		}
		if known[r.key()] {
			return in, fmt.Errorf("%s is in it twice", oneline.Of(r.key().String()))
		}
		known[r.key()] = true
	}
	return in, nil
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

func (b *book) records() records { return b.now.Load().records }

// of returns the records of which the pod is a user, also one that left.
func (b *book) of(uid types.UID) []*Record { return b.now.Load().users[uid] }

func (b *book) get(key types.NamespacedName) *Record { return b.records()[key] }

// apply writes a change durably, and then lets it be seen. A change that returns an error changes
// nothing. Changes that come together are written together.
func (b *book) apply(change func(*draft) error) error {
	own := &edit{change: change}
	b.enqueue(own)
	b.mu.Lock()
	defer b.mu.Unlock()
	if !own.done { // otherwise another one's write had it
		b.writeLocked(b.takeWaiting())
	}
	return own.err
}

func (b *book) enqueue(e *edit) {
	b.queue.Lock()
	defer b.queue.Unlock()
	b.waiting = append(b.waiting, e)
}

func (b *book) takeWaiting() []*edit {
	b.queue.Lock()
	defer b.queue.Unlock()
	all := b.waiting
	b.waiting = nil
	return all
}

func (b *book) writeLocked(edits []*edit) {
	next, changed := maps.Clone(b.records()), false
	for _, e := range edits {
		d := &draft{base: next, edits: records{}}
		e.done, e.err = true, e.change(d)
		if e.err != nil {
			continue
		}
		for key, r := range d.edits {
			changed = changed || !same(next[key], r)
			if next[key] = r; r == nil {
				delete(next, key)
			}
		}
	}
	if !changed {
		return
	}
	if err := b.setLocked(next); err != nil {
		for _, e := range edits {
			if e.err == nil {
				e.err = err
			}
		}
		return
	}
	was := b.now.Swap(newPage(next))
	b.export.changed(next)
	b.tellSettled(was)
}

// tellSettled tells of pods that had claims, and have none any more.
func (b *book) tellSettled(was *page) {
	if b.settled == nil {
		return
	}
	for uid := range was.users {
		if len(b.of(uid)) == 0 {
			b.settled(uid)
		}
	}
}

func (b *book) setLocked(all records) error {
	err := b.file.Set(file{Version: version, BootID: b.bootID, Claims: all.list()})
	switch {
	case errors.Is(err, files.ErrTooLarge):
		return errFull
	case err != nil:
		return fmt.Errorf("record resource claims: %w", err)
	default:
		return nil
	}
}

func same(a, b *Record) bool {
	if a == nil || b == nil {
		return a == b
	}
	one, _ := json.Marshal(a) // of plain values
	other, _ := json.Marshal(b)
	return string(one) == string(other)
}
