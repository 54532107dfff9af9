package nodelogs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/numalet/numalet/internal/files"
)

// folder is a file system of the regular files below a directory of the host. Links are followed if
// their target is below it too, as those to containers' logs are. Pipes and devices are not opened,
// because they could block or never end. Files with hard links are not opened either, because their
// other names may be anywhere.
type folder struct{ path string }

// Open implements fs.FS.
func (f folder) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	if strings.ContainsRune(name, 0) { // no file can have such a name
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	inside, err := f.resolve(name)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(f.path)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	// Even if a link was replaced since it was resolved, root opens nothing outside itself.
	file, err := root.OpenFile(inside, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.IsDir() && !files.Sole(info) {
		err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// resolve returns the path without links, relative to the directory.
func (f folder) resolve(name string) (string, error) {
	top, err := filepath.EvalSymlinks(f.path)
	if err != nil {
		return "", err
	}
	whole, err := filepath.EvalSymlinks(filepath.Join(top, filepath.FromSlash(name)))
	if err != nil {
		return "", err
	}
	inside, err := filepath.Rel(top, whole)
	if err != nil || inside == ".." || strings.HasPrefix(inside, "../") {
		return "", &fs.PathError{Op: "open", Path: name,
			Err: fmt.Errorf("%w: it leads out of %s", fs.ErrPermission, f.path)}
	}
	return inside, nil
}
