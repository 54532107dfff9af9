package scsi

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/storage/volume/shared"
	"github.com/numalet/numalet/internal/files"
)

// key is a disk's directory: below the type's, or of block volumes.
type key struct {
	kind, dir string
	block     bool
}

// leaving: the pod gives the disk up.
type leaving bool

// entry records what the node has of a disk.
type entry struct {
	shared.Uses[Use, leaving]
	disk Disk
	made bool // it has a directory
	// found: the disk comes from its directory, so the API may have another name for it.
	found   bool
	known   Disk // the found disk as the claim or spec of a pod names it; nil: none did
	mounted bool // when it was found
	// login: when the disk was found, a login that an earlier run began may have been under way. iscsid
	// goes on with it without that run and without iscsiadm, and cannot be asked whether it does.
	login bool
}

// Had reports whether the disk has a directory.
func (e *entry) Had() bool { return e.made }

// book has the disks of the node. Directories are the record; the book is read from them once.
type book struct {
	*shared.Book[key, Use, leaving, *entry]
}

func newBook(ends shared.Ends[key]) book {
	return book{shared.New[key, Use, leaving](ends, func() *entry { return &entry{} })}
}

// want notes a use, and reports whether the names in use are others.
func (b book) want(k key, disk Disk, u Use) (news bool) {
	b.Change(k, func(e *entry) {
		news = e.disk == nil || e.found && e.disk.Name() != disk.Name()
		e.disk, e.found = disk, false
		e.Users[u] = false
	})
	return news
}

func (b book) made(k key, disk Disk) {
	b.Change(k, func(e *entry) { e.disk, e.made, e.found = disk, true, false })
}

// names returns the unique names of all volumes.
func (b book) names() []string {
	all := sets.New[string]()
	b.Each(func(_ key, e *entry) {
		all.Insert(e.disk.Name())
		if i, is := e.disk.(*ISCSI); is && e.found {
			all.Insert(i.names()...)
		}
	})
	return sets.List(all)
}

// waiting returns the pods that want such a volume without a directory: they wait for it to be
// attached.
func (b book) waiting(attached func(name string) bool) []types.UID {
	return b.Pods(func(_ key, e *entry, leaves leaving) bool {
		return !e.made && !bool(leaves) && attached(e.disk.Name())
	})
}

// others returns the disks with a directory, but for one.
func (b book) others(but key) (out []Disk) {
	b.Each(func(k key, e *entry) {
		if e.made && k != but {
			out = append(out, e.disk)
		}
	})
	return out
}

// read reads what earlier runs of the agent, or a kubelet, left. A directory that is not a disk's is
// reported and left unchanged.
func (b book) read(p paths, mounts Mounts, h Host) (problems error) {
	all := p.found(&problems)
	for _, k := range all {
		disk, err := foundDisk(k)
		if err != nil {
			problems = errors.Join(problems, err)
			continue
		}
		var pods []os.DirEntry
		if k.block {
			pods, err = os.ReadDir(p.dir(k))
			problems = errors.Join(problems, err)
		}
		b.Change(k, func(e *entry) {
			e.disk, e.made, e.found = disk, true, true
			for _, file := range pods {
				if !isRecord(file.Name()) {
					e.Users[Use{Pod: types.UID(file.Name())}] = false
				}
			}
		})
	}
	if len(all) == 0 {
		return problems
	}
	if err := b.readMounts(p, mounts); err != nil {
		return errors.Join(problems, err)
	}
	b.Each(func(k key, e *entry) {
		if !e.mounted && p.begunSince(k, h.Booted) {
			i, is := completed(e.disk, p.dir(k)).(*ISCSI)
			e.login = is && i.lacksSession(h)
		}
	})
	return problems
}

// mayLogIn reports whether a login of an earlier run may still make a session for the disk.
func (b book) mayLogIn(k key) (may bool) {
	b.Change(k, func(e *entry) { may = e.login })
	return may
}

// readMounts finds the pods that have a mount of a disk's file system.
func (b book) readMounts(p paths, mounts Mounts) error {
	all, err := mounts.List()
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	devices := map[string]key{}
	for _, m := range all {
		b.Each(func(k key, e *entry) {
			if !k.block && m.Path == p.dir(k) {
				devices[m.Device], e.mounted = k, true
			}
		})
	}
	for _, m := range all {
		k, is := devices[m.Device]
		pod, name, below := p.volume(m.Path)
		if is && below == pathName(k.kind) {
			b.Change(k, func(e *entry) { e.Users[Use{Pod: pod, Volume: name}] = false })
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

// volume returns the pod and name of the volume mounted on a path, and the name of its type's directory.
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
			all, err := filepath.Glob(filepath.Join(files.Pattern(dir), pattern)) // the pattern is sound
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

// remove removes the disk's directory, with its record, but no other files in it.
func (p paths) remove(k key) error {
	dir := p.dir(k)
	path := filepath.Join(dir, recordFile)
	err := errors.Join(files.Remove(files.Temporary(path)), files.Remove(path), files.Remove(dir))
	if k.kind == ISCSIName && err == nil {
		_ = os.Remove(filepath.Dir(dir)) // the interface's, if this was its last disk
	}
	return err
}
