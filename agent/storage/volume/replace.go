package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A volume that the agent writes has its files in a directory that is named after the time, and
// dataLink leads there. Each name at the top of the volume is a link through dataLink, so that one
// rename replaces all files at once.
const (
	dataLink    = "..data"
	newDataLink = "..data_tmp"
	versionForm = "..2006_01_02_15_04_05."
)

const (
	// Everybody may list a version's directories.
	versionMode = 0o755
	// groupFiles and groupDirs are added for the pod's group.
	groupFiles = 0o440
	groupDirs  = 0o550 | fs.ModeSetgid

	maxFilePath = 4096 // PATH_MAX
	maxFileName = 255  // NAME_MAX
)

// owner says who owns the files.
type owner struct {
	can   bool // we may give files to others
	group *int64
}

// replace gives the directory these files in place of its present ones: a reader sees all of the
// old ones or all of the new ones. It writes only what changed: an unchanged file is linked into
// the new version. It finishes what an earlier call left half done. last holds what that call
// returned; nil: replace reads the directory.
func replace(dir string, named map[string]file, o owner, last *version) (*version, error) {
	files := make(map[string]file, len(named))
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if err := checkPath(name); err != nil {
			return nil, err
		}
		files[path.Clean(name)] = named[name]
	}
	if err := checkNested(files); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	current, err := root.Readlink(dataLink)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if last != nil && last.name != current {
		last = nil
	}
	next := newVersion(files, o)
	have := holding{same: map[string]bool{}}
	switch {
	case last != nil:
		have = last.holds(next)
	case current != "":
		have = holds(root, current, files, o)
	}
	if next.name = current; current == "" || have.others || len(have.same) != len(files) {
		if next.name, err = writeVersion(root, current, have, files, o); err != nil {
			return nil, err
		}
		if err := lead(root, dataLink, next.name); err != nil {
			return nil, err
		}
	}
	if last == nil {
		return next, tidy(root, next)
	}
	return next, follow(root, last, next)
}

// checkNested refuses a file whose path is also the directory of another one.
func checkNested(files map[string]file) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, is := files[dir]; is {
				return fmt.Errorf("invalid paths %q and %q: the first is a file, and cannot be the "+
					"directory of the second; change one of them", dir, name)
			}
		}
	}
	return nil
}

// checkPath refuses a path that leaves the volume, or collides with our own names.
func checkPath(name string) error {
	elements, clean := strings.Split(name, "/"), path.Clean(name)
	switch {
	case path.IsAbs(name):
		return fmt.Errorf("invalid path %q: must be a relative path", name)
	case slices.Contains(elements, ".."):
		return fmt.Errorf("invalid path %q: must not contain '..'", name)
	case strings.HasPrefix(clean, ".."):
		return fmt.Errorf("invalid path %q: must not start with '..'", name)
	case name == "" || clean == ".":
		return fmt.Errorf("invalid path %q: must name a file in the volume", name)
	case len(name) > maxFilePath:
		return fmt.Errorf("invalid path: must have at most %d bytes, not %d", maxFilePath,
			len(name))
	}
	for _, e := range elements {
		if len(e) > maxFileName {
			return fmt.Errorf("invalid path: each element must have at most %d bytes, not %d",
				maxFileName, len(e))
		}
	}
	return nil
}

// writeVersion makes a new directory with the files. It links those that the version before has
// unchanged.
func writeVersion(root *os.Root, before string, have holding, files map[string]file, o owner) (
	version string, err error) {
	for {
		version = time.Now().UTC().Format(versionForm) + fmt.Sprint(rand.Uint32())
		if err = root.Mkdir(version, versionMode); !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	if err != nil {
		return "", err
	}
	if err := o.directory(root, version); err != nil {
		return "", err
	}
	linked, err := linkSame(root, before, version, have)
	if err != nil {
		return "", err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if linked[name] {
			continue
		}
		if err := o.directories(root, version, path.Dir(name)); err != nil {
			return "", err
		}
		if err := o.file(root, path.Join(version, name), files[name]); err != nil {
			return "", fmt.Errorf("write %s: %w", name, err)
		}
	}
	return version, nil
}

// linkSame links unchanged files of the version before into the new one, but none in
// subdirectories: these are few, since an object's keys have no directories.
func linkSame(root *os.Root, before, version string, have holding) (map[string]bool, error) {
	linked := make(map[string]bool, len(have.same))
	if len(have.same) == 0 {
		return linked, nil
	}
	from, err := root.Open(before)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	to, err := root.Open(version)
	if err != nil {
		return nil, err
	}
	defer to.Close()
	for name, all := range have.same {
		linked[name] = all && !strings.Contains(name, "/") &&
			unix.Linkat(int(from.Fd()), name, int(to.Fd()), name, 0) == nil
	}
	return linked, nil
}

// directories makes the directories on the way to a file.
func (o owner) directories(root *os.Root, version, dir string) error {
	if dir == "." {
		return nil
	}
	if err := o.directories(root, version, path.Dir(dir)); err != nil {
		return err
	}
	at := path.Join(version, dir)
	err := root.Mkdir(at, versionMode)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return o.directory(root, at)
}

// directory gives a directory its owner and, whatever the umask, its mode.
func (o owner) directory(root *os.Root, at string) error {
	mode := fs.FileMode(versionMode)
	if o.group != nil {
		mode |= groupDirs
		if o.can {
			if err := root.Lchown(at, -1, int(*o.group)); err != nil {
				return err
			}
		}
	}
	return root.Chmod(at, mode)
}

// of returns a file's owner, below 0 for the agent's own, and its mode.
func (o owner) of(f file) (user, group int, mode fs.FileMode) {
	user, group, mode = -1, -1, f.mode&fs.ModePerm
	if f.user != nil {
		user = int(*f.user)
	}
	if o.group != nil {
		group = int(*o.group)
		mode |= groupFiles
	}
	return user, group, mode
}

func (o owner) file(root *os.Root, at string, f file) error {
	out, err := root.OpenFile(at, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = out.Write(f.data)
	user, group, mode := o.of(f)
	if err == nil && o.can && (user >= 0 || group >= 0) {
		err = out.Chown(user, group)
	}
	if err == nil {
		err = out.Chmod(mode)
	}
	return errors.Join(err, out.Close())
}

// lead makes name a link to target, whatever it was before.
func lead(root *os.Root, name, target string) error {
	if err := root.RemoveAll(newDataLink); err != nil {
		return err
	}
	if err := root.Symlink(target, newDataLink); err != nil {
		return err
	}
	return root.Rename(newDataLink, name)
}
