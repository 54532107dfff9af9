package nodelogs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/numalet/numalet/topology/files"
)

// folder is a file system of the regular files below a folder of the host. A link is followed if it
// leads to another place below it: the kubelet's and ours to containers' logs do. Pipes and devices
// are not opened: they could block, or never end. Nor are files with other names (hard links), which
// may be of anywhere else.
type folder struct{ path string }

// Open is fs.FS's.
func (f folder) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	if strings.ContainsRune(name, 0) { // no file has such a name
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
	// Whatever was exchanged since it was resolved, the kernel finds nothing outside of root.
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

// resolve is the path below the folder that is meant, without links.
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
