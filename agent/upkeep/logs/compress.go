package logs

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/numalet/numalet/cri/logfiles"
	"github.com/numalet/numalet/internal/files"
)

// moveNew renames a file to a name that does not exist yet.
func moveNew(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) { // not supported by this filesystem
		if _, err = os.Lstat(to); err == nil {
			err = unix.EEXIST
		} else {
			err = os.Rename(from, to)
		}
	}
	if err != nil {
		return fmt.Errorf("rename %s to %s: %w", from, to, err)
	}
	return nil
}

// compress replaces a plain file by a compressed one; at each moment one of them is complete.
func compress(ctx context.Context, dir *files.Folder, base string) (err error) {
	path := dir.Path(base)
	from, err := dir.Open(base)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	name := path + logfiles.Unfinished
	to, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|unix.O_NOFOLLOW, info.Mode())
	if err != nil {
		return err
	}
	packed := gzip.NewWriter(to)
	_, err = io.Copy(packed, untilDone{ctx, from})
	if err = errors.Join(err, packed.Close(), to.Sync(), to.Close()); err != nil {
		return errors.Join(fmt.Errorf("compress %s: %w", path, err), os.Remove(name))
	}
	if err := os.Rename(name, path+logfiles.Compressed); err != nil {
		return err
	}
	return os.Remove(path)
}

// untilDone is a reader that fails when its context ends.
type untilDone struct {
	ctx  context.Context
	from io.Reader
}

func (u untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.from.Read(p)
}
