// Package quota has the kernel count what directories use, by project quotas (ext4, xfs).
//
// A project is a number that an inode carries, and that what is made below it inherits; the
// filesystem counts the blocks and inodes of each. The directory itself is the only record: its project
// leads to the count, also after a restart, and also if a kubelet assigned the project before.
// A project that counts nothing is free again, so that nothing needs to be cleared.
//
// No limit is set: the kernel counts, and the agent decides. A process with rights over the files
// in the first user namespace can give them another project, so only pods with a user namespace of
// their own are counted like this, as by the kubelet.
package quota

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/numalet/numalet/agent/storage/diskusage"
)

const (
	// first is the lowest project that is assigned, the kubelet's.
	first = 1 << 20
	// tries bounds the search for a free project.
	tries = 4096
	// maxProjects bounds what is read of a file of projects.
	maxProjects = 1 << 20
)

// The files of projects that the administrator, and a kubelet, gave numbers (projects(5),
// projid(5)).
var projectFiles = []string{"/etc/projects", "/etc/projid"}

// errNone says that the filesystem does not count projects.
var errNone = errors.New("the filesystem counts no projects (mount option prjquota)")

// fsxattr is the kernel's struct fsxattr (ioctl_xfs_fsgetxattr(2)).
type fsxattr struct {
	flags, extent, extents, project, cow uint32
	_                                    [8]byte
}

// dqblk is the kernel's struct if_dqblk (quotactl(2)).
type dqblk struct {
	hardBlocks, softBlocks, space, hardInodes, softInodes, inodes, blockTime, inodeTime uint64
	valid                                                                               uint32
}

const (
	getAttributes = 0x801c581f // FS_IOC_FSGETXATTR
	setAttributes = 0x401c5820 // FS_IOC_FSSETXATTR
	inherits      = 0x200      // FS_XFLAG_PROJINHERIT
	// projectOf is QCMD(Q_GETQUOTA, PRJQUOTA).
	projectOf = 0x800007<<8 | 2
)

// Assigner gives directories projects.
type Assigner struct {
	mu    sync.Mutex
	files []string
	next  uint32 // where the search for a free project begins
}

// New returns an assigner that keeps off the projects of the machine's files.
func New() *Assigner { return &Assigner{files: projectFiles} }

// Assign gives an empty directory a project of its own, unless it has one. On a filesystem that
// counts no projects it does nothing.
func (a *Assigner) Assign(path string) error {
	err := a.assign(path)
	if errors.Is(err, errNone) {
		return nil
	}
	return err
}

func (a *Assigner) assign(path string) error {
	dir, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("assign a project: %w", err)
	}
	defer dir.Close()
	// Two volumes that are made at once would find the same project free.
	a.mu.Lock()
	defer a.mu.Unlock()
	x, err := attributes(dir)
	if err != nil {
		return err
	}
	if x.project != 0 {
		return nil
	}
	if x.project, err = a.free(dir); err != nil {
		return err
	}
	x.flags |= inherits
	if err := ioctl(dir, setAttributes, &x); err != nil {
		return fmt.Errorf("assign project %d to %s: %w", x.project, path, err)
	}
	a.next = x.project + 1
	return nil
}

// free returns a project that counts nothing on the directory's filesystem, and that no file names.
func (a *Assigner) free(dir *os.File) (uint32, error) {
	named := map[uint32]bool{}
	for _, path := range a.files {
		if err := readProjects(path, named); err != nil {
			return 0, err
		}
	}
	for i := range uint32(tries) {
		project := max(a.next, first) + i
		if named[project] {
			continue
		}
		used, err := counted(dir, project)
		if err != nil {
			return 0, err
		}
		if used.Inodes == 0 && used.Bytes == 0 {
			return project, nil
		}
	}
	return 0, fmt.Errorf("no free project among %d from %d on", tries, max(a.next, first))
}

// readProjects adds the numbers in a file of projects: "number:path" or "name:number".
func readProjects(path string, named map[uint32]bool) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read projects: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, maxProjects))
	for lines.Scan() {
		for word := range strings.SplitSeq(lines.Text(), ":") {
			if n, err := strconv.ParseUint(word, 10, 32); err == nil {
				named[uint32(n)] = true
			}
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// Used returns what a directory's project counts; false: the directory has none of its own, or the
// filesystem counts none.
func Used(path string) (diskusage.Usage, bool) {
	dir, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return diskusage.Usage{}, false
	}
	defer dir.Close()
	x, err := attributes(dir)
	if err != nil || x.project == 0 || x.flags&inherits == 0 || x.project == parentOf(dir) {
		return diskusage.Usage{}, false
	}
	used, err := counted(dir, x.project)
	return used, err == nil && used.Inodes > 0
}

// parentOf returns the project of the directory above: an inherited project counts others too.
func parentOf(dir *os.File) uint32 {
	fd, err := unix.Openat(int(dir.Fd()), "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	parent := os.NewFile(uintptr(fd), "..")
	defer parent.Close()
	x, err := attributes(parent)
	if err != nil {
		return 0
	}
	return x.project
}

// attributes returns a directory's attributes. It returns errNone on a filesystem that has no
// projects.
func attributes(dir *os.File) (x fsxattr, err error) {
	err = ioctl(dir, getAttributes, &x)
	if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		return x, errNone
	}
	if err != nil {
		return x, fmt.Errorf("read the project of %s: %w", dir.Name(), err)
	}
	return x, nil
}

// counted returns what the project uses on the filesystem of a directory (quotactl_fd(2), Linux
// 5.14).
func counted(dir *os.File, project uint32) (diskusage.Usage, error) {
	var q dqblk
	_, _, e := unix.Syscall6(unix.SYS_QUOTACTL_FD, dir.Fd(), projectOf, uintptr(project),
		uintptr(unsafe.Pointer(&q)), 0, 0)
	switch e {
	case 0:
		return diskusage.Usage{Bytes: q.space, Inodes: q.inodes}, nil
	case unix.ENOENT: // nothing was ever counted
		return diskusage.Usage{}, nil
	case unix.ESRCH, unix.ENOSYS, unix.ENOTSUP, unix.EINVAL, unix.EPERM:
		return diskusage.Usage{}, errNone
	}
	return diskusage.Usage{}, fmt.Errorf("read what project %d uses: %w", project, e)
}

func ioctl(dir *os.File, request uintptr, x *fsxattr) error {
	_, _, e := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), request, uintptr(unsafe.Pointer(x)))
	if e != 0 {
		return e
	}
	return nil
}
