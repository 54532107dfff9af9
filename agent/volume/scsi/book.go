package scsi

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/internal/files"
)

// key is a disk's directory: below the type's, or of block volumes.
type key struct {
	kind, dir string
	block     bool
}

// state is how far a pod's use is.
type state struct{ leaving bool }

// shared records who uses a disk, and whether it is to be detached.
type shared struct {
	disk  Disk
	users map[Use]state
	made  bool // it has a directory
	// found: the disk comes from its directory, so the API may have another name for it.
	found   bool
	ending  bool // a goroutine detaches it
	mounted bool // when it was found
	// login: when the disk was found, iscsid may have been at a login for an earlier run. It goes on
	// without that run and without iscsiadm, and nobody can ask for it.
	login bool
}

// book has the disks of the node. Directories are the record; the book is read from them once.
type book struct {
	mu    sync.Mutex // guards disks
	disks map[key]*shared
}

func newBook() *book { return &book{disks: map[key]*shared{}} }

// change changes what is known of a disk, and forgets one of which nothing is left.
func (b *book) change(k key, do func(s *shared)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.disks[k]
	if s == nil {
		s = &shared{users: map[Use]state{}}
		b.disks[k] = s
	}
	do(s)
	if len(s.users) == 0 && !s.made {
		delete(b.disks, k)
	}
}

// want notes a use, and reports whether the names in use are others.
func (b *book) want(k key, disk Disk, u Use) (news bool) {
	b.change(k, func(s *shared) {
		news = s.disk == nil || s.found && s.disk.Name() != disk.Name()
		s.disk, s.found = disk, false
		s.users[u] = state{}
	})
	return news
}

func (b *book) made(k key, disk Disk) {
	b.change(k, func(s *shared) { s.disk, s.made, s.found = disk, true, false })
}

// isWanted reports whether a use is not being given up.
func (b *book) isWanted(k key, u Use) (is bool) {
	b.change(k, func(s *shared) {
		now, has := s.users[u]
		is = has && !now.leaving
	})
	return is
}

// names returns the unique names of all volumes.
func (b *book) names() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string]bool{}
	for _, s := range b.disks {
		names := []string{s.disk.Name()}
		if s.found {
			names = s.disk.names()
		}
		for _, name := range names {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// waiting returns the pods that want such a volume without a directory: they wait for it to be
// attached.
func (b *book) waiting(attached func(name string) bool) []types.UID {
	b.mu.Lock()
	defer b.mu.Unlock()
	pods := map[types.UID]bool{}
	for _, s := range b.disks {
		for u, is := range s.users {
			if !s.made && !is.leaving && attached(s.disk.Name()) {
				pods[u.Pod] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(pods))
}

// uses returns the uses of a pod, with the disk of each.
func (b *book) uses(pod types.UID) map[Use]key {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[Use]key{}
	for k, s := range b.disks {
		for u := range s.users {
			if u.Pod == pod {
				out[u] = k
			}
		}
	}
	return out
}

// unused returns the disks that no pod uses.
func (b *book) unused() (out []key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, s := range b.disks {
		if len(s.users) == 0 {
			out = append(out, k)
		}
	}
	return out
}

// others returns the disks with a directory, but for one.
func (b *book) others(but key) (out []Disk) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, s := range b.disks {
		if s.made && k != but {
			out = append(out, s.disk)
		}
	}
	return out
}

// read reads what earlier runs of the agent, or a kubelet, left. A directory that is none of a disk is
// reported and left alone.
func (b *book) read(p paths, mounts Mounts, h Host) (problems error) {
	for _, k := range p.found(&problems) {
		disk, err := foundDisk(k)
		if err != nil {
			problems = errors.Join(problems, err)
			continue
		}
		s := &shared{disk: disk, users: map[Use]state{}, made: true, found: true}
		b.disks[k] = s
		if !k.block {
			continue
		}
		pods, err := os.ReadDir(p.dir(k))
		problems = errors.Join(problems, err)
		for _, file := range pods {
			if isRecord(file.Name()) {
				continue
			}
			s.users[Use{Pod: types.UID(file.Name())}] = state{}
		}
	}
	if len(b.disks) == 0 {
		return problems
	}
	if err := b.readMounts(p, mounts); err != nil {
		return errors.Join(problems, err)
	}
	for k, s := range b.disks {
		if !s.mounted && p.begunSince(k, h.Booted) {
			i, is := completed(s.disk, p.dir(k)).(*ISCSI)
			s.login = is && i.lacksSession(h)
		}
	}
	return problems
}

// mayLogIn reports whether a login of an earlier run may still make a session for the disk.
func (b *book) mayLogIn(k key) (may bool) {
	b.change(k, func(s *shared) { may = s.login })
	return may
}

// readMounts finds the pods that have a mount of a disk's file system.
func (b *book) readMounts(p paths, mounts Mounts) error {
	all, err := mounts.List()
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	devices := map[string]key{}
	for _, m := range all {
		for k := range b.disks {
			if !k.block && m.Path == p.dir(k) {
				devices[m.Device] = k
				b.disks[k].mounted = true
			}
		}
	}
	for _, m := range all {
		k, is := devices[m.Device]
		pod, name, below := p.volume(m.Path)
		if is && below == pathName(k.kind) {
			b.disks[k].users[Use{Pod: pod, Volume: name}] = state{}
		}
	}
	return nil
}

// foundDisk returns the disk of a directory.
func foundDisk(k key) (Disk, error) {
	if k.kind == FCName {
		return foundFC(k.dir)
	}
	return foundISCSI(k.dir)
}

// paths knows where the files are. It is the agent's root directory.
type paths string

const (
	podsName    = "pods"
	pluginsName = "plugins"
	volumesName = "volumes"
	dirMode     = 0o750
)

func pathName(kind string) string { return strings.ReplaceAll(kind, "/", "~") }

// of returns the directory of a type's disks.
func (p paths) of(kind string, block bool) string {
	out := filepath.Join(string(p), pluginsName, kind)
	if block {
		return filepath.Join(out, devicesName)
	}
	return out
}

func (p paths) dir(k key) string { return filepath.Join(p.of(k.kind, k.block), k.dir) }

// file is the file for a pod's mount of a device.
func (p paths) file(k key, pod types.UID) string { return filepath.Join(p.dir(k), string(pod)) }

// volume returns whose volume is mounted on a path, its name, and the name of the type's directory.
func (p paths) volume(path string) (pod types.UID, name, kind string) {
	rest, is := strings.CutPrefix(path, filepath.Join(string(p), podsName)+"/")
	parts := strings.Split(rest, "/")
	if !is || len(parts) != 4 || parts[1] != volumesName {
		return "", "", ""
	}
	return types.UID(parts[0]), parts[3], parts[2]
}

// found returns the disks that have a directory.
func (p paths) found(problems *error) (out []key) {
	for _, kind := range []string{ISCSIName, FCName} {
		for _, block := range []bool{false, true} {
			dir := p.of(kind, block)
			pattern := "*"
			if kind == ISCSIName {
				pattern = ifacePrefix + "*/*"
			}
			all, err := filepath.Glob(filepath.Join(escaped(dir), pattern)) // the pattern is sound
			*problems = errors.Join(*problems, err)
			for _, path := range all {
				if rel := strings.TrimPrefix(path, dir+"/"); block || rel != devicesName {
					out = append(out, key{kind, rel, block})
				}
			}
		}
	}
	return out
}

// begin makes the disk's directory with its record. Nothing is mounted there.
func (p paths) begin(disk Disk, dir string) error {
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return err
	}
	if i, is := disk.(*ISCSI); is {
		return i.write(dir)
	}
	return nil
}

// begunSince reports whether the disk's record was written since then: a login comes after it.
func (p paths) begunSince(k key, then time.Time) bool {
	record, err := os.Stat(filepath.Join(p.dir(k), recordFile))
	return err == nil && record.ModTime().After(then)
}

// isRecord reports whether a file in a disk's directory is the disk's, and not a pod's.
func isRecord(name string) bool {
	return name == recordFile || name == filepath.Base(files.Temporary(recordFile))
}

// remove removes the disk's directory, with its record. What else is in it is none of ours.
func (p paths) remove(k key) error {
	dir := p.dir(k)
	path := filepath.Join(dir, recordFile)
	err := errors.Join(files.Remove(files.Temporary(path)), files.Remove(path), files.Remove(dir))
	if k.kind == ISCSIName && err == nil {
		_ = os.Remove(filepath.Dir(dir)) // the interface's, if this was its last disk
	}
	return err
}
