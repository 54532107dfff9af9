package crisim

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// inside holds what a command in a container sees: its environment, and its mounts, which are the host's
// files. There is nothing else, since images have no content.
type inside struct {
	env    []string
	mounts []*runtimeapi.Mount
}

// insideOf returns what commands in the container see.
func insideOf(c *container) inside {
	var in inside
	for _, kv := range c.config.GetEnvs() {
		in.env = append(in.env, kv.GetKey()+"="+string(kv.GetValue()))
	}
	in.mounts = c.config.GetMounts()
	return in
}

// open returns the mount's root on the host and the name below it of a path in the container. A root
// keeps what the name resolves to below it: the container's links may lead anywhere. False: no mount
// has the path.
func (in inside) open(at string) (root *os.Root, name string, found bool, err error) {
	at = path.Clean("/" + at)
	var best *runtimeapi.Mount
	for _, m := range in.mounts {
		to := path.Clean("/" + m.GetContainerPath())
		if (at == to || strings.HasPrefix(at, strings.TrimSuffix(to, "/")+"/")) &&
			(best == nil || len(to) > len(path.Clean("/"+best.GetContainerPath()))) {
			best = m
		}
	}
	if best == nil {
		return nil, "", false, nil
	}
	name = strings.TrimPrefix(strings.TrimPrefix(at, path.Clean("/"+best.GetContainerPath())), "/")
	host := best.GetHostPath()
	info, err := os.Stat(host)
	if err != nil {
		return nil, "", true, err
	}
	if !info.IsDir() { // a file is mounted, as /etc/hosts is
		if name != "" {
			return nil, "", true, fs.ErrNotExist
		}
		host, name = filepath.Dir(host), filepath.Base(host)
	}
	root, err = os.OpenRoot(host)
	if name == "" {
		name = "."
	}
	return root, name, true, err
}

// absent is said of a path that no mount has.
const absent = "the container is simulated, and of files it has only those of its volumes: "

// mountPoints lists where there is something, for messages and for ls above the mounts.
func (in inside) mountPoints() []string {
	var out []string
	for _, m := range in.mounts {
		out = append(out, path.Clean("/"+m.GetContainerPath()))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// read returns the content of a regular file.
func (in inside) read(at string) ([]byte, error) {
	root, name, found, err := in.open(at)
	if !found {
		return nil, fmt.Errorf("%s%s", absent, strings.Join(in.mountPoints(), " "))
	}
	if err != nil {
		return nil, shortly(err)
	}
	defer root.Close()
	f, err := root.Open(name)
	if err != nil {
		return nil, shortly(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, shortly(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is no file that can be shown")
	}
	return io.ReadAll(io.LimitReader(f, mostRead))
}

// mostRead bounds what is shown of a file.
const mostRead = 1 << 20

// list returns the names in a directory, or the file itself. Above the mounts it returns the ways to
// them.
func (in inside) list(at string) ([]string, error) {
	at = path.Clean("/" + at)
	names := in.below(at)
	root, name, found, err := in.open(at)
	switch {
	case !found && (len(names) > 0 || at == "/"):
		return names, nil
	case !found:
		return nil, fmt.Errorf("%s%s", absent, strings.Join(in.mountPoints(), " "))
	case err != nil:
		return nil, shortly(err)
	}
	defer root.Close()
	f, err := root.Open(name)
	if err != nil {
		return nil, shortly(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.IsDir() {
		return []string{at}, shortly(err)
	}
	entries, err := f.ReadDir(mostListed)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return slices.Compact(names), shortly(err)
}

// mostListed bounds the names of a directory.
const mostListed = 10_000

// below returns the next part of each mount point below the directory.
func (in inside) below(dir string) (names []string) {
	for _, at := range in.mountPoints() {
		rest, is := strings.CutPrefix(at, strings.TrimSuffix(dir, "/")+"/")
		if is && rest != "" {
			name, _, _ := strings.Cut(rest, "/")
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// shortly leaves out the host's path, which the container does not know.
func shortly(err error) error {
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}
