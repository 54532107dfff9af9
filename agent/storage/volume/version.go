package volume

import (
	"bytes"
	"crypto/sha256"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	"k8s.io/apimachinery/pkg/types"
)

// version describes what was written into a volume, so that the next version is made without
// reading it again.
type version struct {
	name  string // of its directory
	files map[string]wrote
}

// wrote describes a file as it was written.
type wrote struct {
	data        [sha256.Size]byte
	user, group int
	mode        fs.FileMode
}

// newVersion describes the version that these files will be; it has no name yet.
func newVersion(files map[string]file, o owner) *version {
	v := &version{files: make(map[string]wrote, len(files))}
	for name, f := range files {
		w := wrote{data: sha256.Sum256(f.data)}
		w.user, w.group, w.mode = o.of(f)
		v.files[name] = w
	}
	return v
}

// links returns the names at the top of the volume, and where each leads.
func (v *version) links() map[string]string {
	links := map[string]string{}
	for name := range v.files {
		first, _, _ := strings.Cut(name, "/")
		links[first] = path.Join(dataLink, first)
	}
	return links
}

// holds returns what the version has of the next one's files.
func (v *version) holds(next *version) holding {
	out := holding{same: make(map[string]bool, len(next.files))}
	for name, was := range v.files {
		switch is, wanted := next.files[name]; {
		case !wanted:
			out.others = true
		case was.data == is.data:
			out.same[name] = was == is
		}
	}
	return out
}

// holding says which of the wanted files a version has.
type holding struct {
	// same has the files with the wanted bytes; true: mode and owner are right too.
	same   map[string]bool
	others bool // there are other files, or the version cannot be read
}

// holds reads all files of a version and compares them with the wanted ones.
func holds(root *os.Root, version string, files map[string]file, o owner) holding {
	out := holding{same: make(map[string]bool, len(files))}
	top, err := root.OpenRoot(version)
	if err != nil {
		return holding{others: true}
	}
	defer top.Close()
	err = fs.WalkDir(top.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		f, wanted := files[name]
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if !wanted || !info.Mode().IsRegular() {
			out.others = true
			return nil
		}
		if info.Size() != int64(len(f.data)) {
			return nil
		}
		data, err := top.ReadFile(name)
		if err == nil && bytes.Equal(data, f.data) {
			out.same[name] = o.has(info, f)
		}
		return err
	})
	out.others = out.others || err != nil
	return out
}

// has reports whether a file has the mode and the owner that f would get.
func (o owner) has(info fs.FileInfo, f file) bool {
	user, group, mode := o.of(f)
	is, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Mode() == mode && (!o.can ||
		(user < 0 || user == int(is.Uid)) && (group < 0 || group == int(is.Gid)))
}

// follow changes the links at the top of a volume from the last version's to the next one's, and
// removes the last version.
func follow(root *os.Root, last, next *version) error {
	before, after := last.links(), next.links()
	var gone []string
	if last.name != next.name {
		gone = append(gone, last.name)
	}
	for name := range before {
		if _, stays := after[name]; !stays {
			gone = append(gone, name)
		}
		delete(after, name)
	}
	for _, name := range slices.Sorted(slices.Values(gone)) {
		if err := root.RemoveAll(name); err != nil {
			return err
		}
	}
	return link(root, after)
}

// tidy links each top name of the files, and removes everything else except the version.
func tidy(root *os.Root, v *version) error {
	links := v.links()
	links[dataLink] = v.name
	top, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	for _, entry := range top {
		name := entry.Name()
		target, wanted := links[name]
		switch at, err := root.Readlink(name); {
		case name == v.name:
			continue
		case wanted && err == nil && at == target:
			delete(links, name)
			continue
		}
		if err := root.RemoveAll(name); err != nil {
			return err
		}
	}
	return link(root, links)
}

// link makes links of names that do not exist yet.
func link(root *os.Root, links map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(links)) {
		if err := root.Symlink(links[name], name); err != nil {
			return err
		}
	}
	return nil
}

// lastVersions has the versions that this run of the agent wrote, by pod and directory. The zero
// value is ready.
type lastVersions struct {
	mu   sync.Mutex
	pods map[types.UID]map[string]*version
}

// take returns the last version of a volume, nil if there is none, and forgets it: what the directory
// has is unknown until the next version is kept.
func (v *lastVersions) take(pod types.UID, dir string) *version {
	v.mu.Lock()
	defer v.mu.Unlock()
	last := v.pods[pod][dir]
	delete(v.pods[pod], dir)
	return last
}

func (v *lastVersions) keep(pod types.UID, dir string, last *version) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.pods == nil {
		v.pods = map[types.UID]map[string]*version{}
	}
	if v.pods[pod] == nil {
		v.pods[pod] = map[string]*version{}
	}
	v.pods[pod][dir] = last
}

func (v *lastVersions) forget(pod types.UID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.pods, pod)
}
