package held

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// stat reads the attributes of what path leads to, as far as they are known here: it does not wait for
// the server of a filesystem.
func stat(path string) (s unix.Statx_t, err error) {
	const mask = unix.STATX_TYPE | unix.STATX_NLINK | unix.STATX_INO | unix.STATX_BLOCKS
	err = unix.Statx(unix.AT_FDCWD, path, unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC, mask, &s)
	return s, err
}

func deviceOf(s *unix.Statx_t) uint64 { return unix.Mkdev(s.Dev_major, s.Dev_minor) }

// names returns at most so many names in a directory.
func names(dir string, most int) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := f.Readdirnames(most)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return all, err
}

// head reads the beginning of a file; all is false if there is more.
func head(path string, most int64) (text string, all bool) {
	f, err := os.Open(path)
	if err != nil {
		return "", true
	}
	defer f.Close()
	read, _ := io.ReadAll(io.LimitReader(f, most+1))
	if int64(len(read)) > most {
		return string(read[:most]), false
	}
	return string(read), true
}
