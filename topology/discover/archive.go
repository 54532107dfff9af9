package discover

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
)

// A snapshot of a machine with 512 CPUs has about 100,000 entries and 50 MB.
const (
	maxEntries  = 1_000_000
	maxUnpacked = 512 << 20
)

// unpack writes the directories, files and relative links of a gzipped tar below dir. Entries that
// would lead out of dir are an error; os.Root keeps links from leading out too.
func unpack(dir string, r io.Reader) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	zipped, err := gzip.NewReader(r)
	if err != nil {
		return damaged(err)
	}
	defer zipped.Close()
	archive := tar.NewReader(zipped)
	left := int64(maxUnpacked)
	for range maxEntries {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			// gzip's checksum follows the tar.
			_, err := io.Copy(io.Discard, io.LimitReader(zipped, maxUnpacked))
			return damaged(err)
		}
		if err != nil {
			return damaged(err)
		}
		if left -= header.Size; left < 0 || header.Size < 0 {
			return fmt.Errorf("entry %q: more than %d MiB unpacked: not a snapshot of a machine",
				shorten(header.Name), maxUnpacked>>20)
		}
		if err := unpackEntry(root, header, archive); err != nil {
			return err
		}
	}
	return fmt.Errorf("more than %d entries: not a snapshot of a machine", maxEntries)
}

func unpackEntry(root *os.Root, header *tar.Header, content io.Reader) error {
	name := path.Clean(header.Name)
	if path.IsAbs(name) || name == ".." || strings.HasPrefix(name, "../") {
		return fmt.Errorf("entry %q leads out of the snapshot; refused", shorten(header.Name))
	}
	if header.Typeflag == tar.TypeDir {
		return entryError(header, root.MkdirAll(name, 0o700))
	}
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return entryError(header, err)
	}
	switch header.Typeflag {
	case tar.TypeReg:
		return entryError(header, writeFile(root, name, content))
	case tar.TypeSymlink:
		if path.IsAbs(header.Linkname) {
			return nil // sysfs only has relative links
		}
		if target := path.Join(path.Dir(name), header.Linkname); strings.HasPrefix(target, "..") {
			return fmt.Errorf("entry %q: its link to %q leads out of the snapshot; refused",
				shorten(header.Name), shorten(header.Linkname))
		}
		return entryError(header, root.Symlink(header.Linkname, name))
	default:
		return nil // devices and the like say nothing about the machine
	}
}

func writeFile(root *os.Root, name string, content io.Reader) (err error) {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = io.Copy(f, content)
	return damaged(err)
}

func entryError(header *tar.Header, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("entry %q: %w", shorten(header.Name), err)
}

func damaged(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the archive is damaged or cut short (%w); copy or make it again", err)
}
