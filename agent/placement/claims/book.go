package claims

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/internal/files"
)

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

// book is all records, kept in a file. Reading it takes no lock.
type book struct {
	bootID string
	// unprepared is called for pods that have no claim any more; it must not block. Optional.
	unprepared func(types.UID)
	now        atomic.Pointer[page] // what the file has
	// lost: the file was not there, or could not be used.
	lost   bool
	export *export

	group *files.Group[*edit]
	file  *files.Journal // of who has the group's turn
}

// edit is a change that is written beside others that come at the same time.
type edit struct {
	change func(*draft) error
	// repeated: after a power cut, what the change says is found out again.
	repeated bool
	err      error // of change; such an edit changes nothing
}

// draft collects what an edit makes of the records.
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

func isUnusable(err error) bool { return errors.Is(err, files.ErrUnusable) }

// openBook reads the file. An unusable file is moved aside: the book is empty then, beside an error that
// is files.ErrUnusable. Any other error comes without a book.
func openBook(dir, bootID string) (*book, error) {
	path := filepath.Join(dir, FileName)
	in, err := files.Load(path, maxRead, time.Now(), parse)
	b := &book{bootID: bootID, lost: in.Version == "", group: files.NewGroup[*edit](),
		file: files.NewJournal(path, files.Bounds{First: maxFile, Slack: journalSlack})}
	switch {
	case isUnusable(err):
		err = fmt.Errorf("the record of resource claims cannot be used: %w", err)
	case err != nil:
		return nil, fmt.Errorf("read resource claims: %w", err)
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

func (b *book) records() records { return b.now.Load().records }

// of returns the records of which the pod is a user, also one that left.
func (b *book) of(uid types.UID) []*Record { return b.now.Load().users[uid] }

func (b *book) get(key types.NamespacedName) *Record { return b.records()[key] }

// apply writes a change durably, and then lets it be seen. A change that returns an error changes
// nothing. Changes that come together are written together.
func (b *book) apply(change func(*draft) error) error { return b.write(&edit{change: change}) }

// applyAnswers is apply for what drivers answered. It does not wait for the disk: after a power cut,
// and so in another boot, a driver is asked again whatever it answered.
func (b *book) applyAnswers(change func(*draft) error) error {
	return b.write(&edit{change: change, repeated: true})
}

func (b *book) write(own *edit) error {
	err := b.group.Write(context.Background(), own, b.writeAll)
	return cmp.Or(own.err, err)
}

func (b *book) writeAll(edits []*edit) error {
	next, changed, durable := maps.Clone(b.records()), records{}, false
	for _, e := range edits {
		d := &draft{base: next, edits: records{}}
		if e.err = e.change(d); e.err != nil {
			continue
		}
		for key, r := range d.edits {
			if !same(next[key], r) {
				changed[key] = r
				durable = durable || !e.repeated
			}
			if next[key] = r; r == nil {
				delete(next, key)
			}
		}
	}
	if len(changed) == 0 {
		return nil
	}
	if err := b.record(next, changed, durable); err != nil {
		return err
	}
	was := b.now.Swap(newPage(next))
	b.export.changed(next)
	b.notifyUnprepared(was)
	return nil
}

// notifyUnprepared tells of pods that had claims, and have none any more.
func (b *book) notifyUnprepared(was *page) {
	if b.unprepared == nil {
		return
	}
	for uid := range was.users {
		if len(b.of(uid)) == 0 {
			b.unprepared(uid)
		}
	}
}

// record writes what has changed.
func (b *book) record(next, changed records, durable bool) error {
	line, err := encodeChange(changed)
	if err != nil {
		return err
	}
	whole := func() ([]byte, error) { return b.whole(next, durable) }
	return unrecorded(b.file.Record(line, durable, whole))
}

// whole returns the first line of a file with these records. Records that do not grow always fit.
func (b *book) whole(all records, grows bool) ([]byte, error) {
	content, err := files.EncodeLine("", file{Version: version, BootID: b.bootID, Claims: all.list()})
	if err == nil && grows && len(content) > maxFile {
		err = errFull
	}
	return content, err
}

// unrecorded says what an error is about, unless the error does.
func unrecorded(err error) error {
	if err == nil || errors.Is(err, errFull) {
		return err
	}
	return fmt.Errorf("record resource claims: %w", err)
}

func same(a, b *Record) bool {
	if a == nil || b == nil {
		return a == b
	}
	one, _ := json.Marshal(a) // of plain values
	other, _ := json.Marshal(b)
	return string(one) == string(other)
}
