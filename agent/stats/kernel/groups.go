package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Counts are what the kernel counts of a cgroup with all below it. What it does not count there is
// zero.
type Counts struct {
	At        time.Time
	CPU       CPU
	Memory    Memory
	Swap      *Swap // nil: the kernel does not count it
	Processes uint64
	Pressure  Pressure
}

// CPU is time in nanoseconds, and how often the quota was used up.
type CPU struct {
	Usage, User, System uint64
	// Periods of the quota, those in which it was used up, and the time waited for the next.
	Periods, Throttled, ThrottledTime uint64
	// Shares, and Quota in each Period in microseconds, zero where there is none.
	Shares, Quota, Period uint64
}

// Memory is in bytes but for the faults, failures and kills. Limit is zero where there is none.
type Memory struct {
	Usage, Peak, Limit            uint64
	RSS, Cache, Mapped, Kernel    uint64
	ActiveFile, InactiveFile      uint64
	Faults                        Faults
	Failures, OutOfMemoryKillings uint64
}

// Faults are page faults, and those for which the kernel had to read.
type Faults struct{ All, Major uint64 }

// WorkingSet is the memory that the kernel cannot easily take back.
func (m Memory) WorkingSet() uint64 { return m.Usage - min(m.Usage, m.InactiveFile) }

// Swap is in bytes; Limit is zero where there is none.
type Swap struct{ Usage, Limit uint64 }

// Pressure is how long processes waited; nil where the kernel does not tell.
type Pressure struct{ CPU, Memory, IO *statsapi.PSIStats }

// Groups reads cgroups below one mount point.
type Groups struct {
	mount   string
	unified bool
}

// NewGroups reads below mount; "" is /sys/fs/cgroup.
func NewGroups(mount string) Groups {
	mount = cmp.Or(mount, "/sys/fs/cgroup")
	_, err := os.Stat(filepath.Join(mount, "cgroup.controllers"))
	return Groups{mount, err == nil}
}

// Version is that of the kernel's interface: 1 or 2.
func (g Groups) Version() int {
	if g.unified {
		return 2
	}
	return 1
}

// Reader is for one goroutine, which reads many cgroups.
func (g Groups) Reader() *Reader { return &Reader{Groups: g} }

// Reader reads one cgroup after the other.
type Reader struct {
	Groups
	fd    int               // the open directory of a cgroup
	names map[string]string // of block devices, by number
	buf   [16 << 10]byte
}

// Read reads the cgroup at path, which is below the mount point. The error is fs.ErrNotExist when
// there is none.
func (d *Reader) Read(path string) (Counts, error) {
	c := Counts{At: time.Now()}
	read := d.readLegacy
	if d.unified {
		read = d.readUnified
	}
	if err := read(path, &c); err != nil {
		return Counts{}, fmt.Errorf("read cgroup %s: %w", path, err)
	}
	return c, nil
}

// open opens a directory; it is closed after its files were read.
func (d *Reader) open(path string) (err error) {
	d.fd, err = unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return err
}

func (d *Reader) close() { _ = unix.Close(d.fd) }

// read is the content of a file until the next read; nil where it cannot be had, since kernels
// differ in the files that they have, and a cgroup may go at any time.
func (d *Reader) read(name string) []byte {
	fd, err := unix.Openat(d.fd, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	n := 0
	for n < len(d.buf) {
		got, err := unix.Read(fd, d.buf[n:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil
		case got == 0:
			return d.buf[:n]
		}
		n += got
	}
	return d.buf[:n]
}

// number is a file that has one number; 0 is also "max".
func (d *Reader) number(name string) uint64 {
	value, _ := parseNumber(d.read(name))
	return value
}

// pairs takes the numbers of a file of lines "key value".
func (d *Reader) pairs(name string, to values) { to.pairs(d.read(name)) }

// pressure is a file of pressure stall information.
func (d *Reader) pressure(name string) *statsapi.PSIStats { return parsePressure(d.read(name)) }
