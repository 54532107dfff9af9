package diskusage

import (
	"encoding/binary"
	"errors"
	"iter"

	"golang.org/x/sys/unix"
)

// entry is an entry of a directory (struct linux_dirent64, getdents64(2)).
type entry struct {
	kind byte  // as DT_DIR
	name *byte // ends with a zero; valid until the next entries are read
	text []byte
	// from is where the entry is in its directory.
	from int64
}

// entries are some of a directory's entries.
type entries struct {
	buf  [32 << 10]byte
	left []byte
}

// read reads the next entries of an open directory; false: there are no more. It sets partial if they
// cannot be read.
func (e *entries) read(fd int, partial *bool) bool {
	for {
		n, err := unix.Getdents(fd, e.buf[:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil && !errors.Is(err, unix.ENOENT): // ENOENT: the directory was removed
			*partial = true
		}
		e.left = e.buf[:max(n, 0)]
		return len(e.left) > 0
	}
}

// all returns the entries but "." and "..", and moves the place in the directory beyond each.
func (e *entries) all(place *int64) iter.Seq[entry] {
	const header = 19
	return func(yield func(entry) bool) {
		for len(e.left) > header {
			offset := int64(binary.NativeEndian.Uint64(e.left[8:]))
			size := int(binary.NativeEndian.Uint16(e.left[16:]))
			if size <= header || size > len(e.left) {
				return
			}
			one := entry{kind: e.left[18], name: &e.left[header], text: text(e.left[header:size]), from: *place}
			e.left, *place = e.left[size:], offset
			if string(one.text) != "." && string(one.text) != ".." && !yield(one) {
				return
			}
		}
	}
}

// text returns what is before the first zero.
func text(b []byte) []byte {
	for i, c := range b {
		if c == 0 {
			return b[:i]
		}
	}
	return nil
}
