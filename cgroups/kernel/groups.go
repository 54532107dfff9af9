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

// Counts holds the kernel's counts of a cgroup and everything below it. What it does not count is
// zero.
type Counts struct {
	At        time.Time
	CPU       CPU
	Memory    Memory
	Swap      *Swap // nil: the kernel does not count it
	Processes uint64
	Pressure  Pressure
}

// CPU holds times in nanoseconds, and the counts of the quota.
type CPU struct {
	Usage, User, System uint64
	// Periods counts periods with a quota, Throttled those in which it ran out. ThrottledTime is the
	// total time that threads were throttled.
	Periods, Throttled, ThrottledTime uint64
	// Shares, Quota and Period are zero if not set; Quota and Period are in microseconds.
	Shares, Quota, Period uint64
}

// Memory is in bytes, except for faults, failures and kills. Limit is zero if there is none.
type Memory struct {
	Usage, Peak, Limit            uint64
	RSS, Cache, Mapped, Kernel    uint64
	ActiveFile, InactiveFile      uint64
	Faults                        Faults
	Failures, OutOfMemoryKillings uint64
}

// Faults counts page faults; Major counts those for which the kernel had to read.
type Faults struct{ All, Major uint64 }

// WorkingSet is the memory that the kernel cannot easily take back.
func (m Memory) WorkingSet() uint64 { return m.Usage - min(m.Usage, m.InactiveFile) }

// Swap is in bytes; Limit is zero if there is none.
type Swap struct{ Usage, Limit uint64 }

// Pressure tells how long processes waited; nil if the kernel does not report it.
type Pressure struct{ CPU, Memory, IO *statsapi.PSIStats }

// Groups reads cgroups below one mount point.
type Groups struct {
	mount   string
	unified bool
}

// NewGroups returns the cgroups below mount; "" means /sys/fs/cgroup.
func NewGroups(mount string) Groups {
	mount = cmp.Or(mount, "/sys/fs/cgroup")
	_, err := os.Stat(filepath.Join(mount, "cgroup.controllers"))
	return Groups{mount, err == nil}
}

// Version returns the version of the kernel's interface: 1 or 2.
func (g Groups) Version() int {
	if g.unified {
		return 2
	}
	return 1
}

// Reader returns a reader of many cgroups, for one goroutine.
func (g Groups) Reader() *Reader { return &Reader{Groups: g} }

// Reader reads one cgroup after the other.
type Reader struct {
	Groups
	directory
	names map[string]string // of block devices, by major:minor
}

// directory reads the files of one open directory after the other, and reuses its buffer.
type directory struct {
	fd  int
	buf [16 << 10]byte
}

// Read reads the cgroup at path, relative to the mount point. The error is fs.ErrNotExist if there
// is none.
func (d *Reader) Read(path string) (Counts, error) {
	if d.unified {
		return d.counts(path, d.readUnified)
	}
	return d.counts(path, d.readLegacy)
}

// Use reads only the memory and the processes of the cgroup at path, in a fraction of the time.
func (d *Reader) Use(path string) (Counts, error) {
	if d.unified {
		return d.counts(path, d.useUnified)
	}
	return d.counts(path, d.useLegacy)
}

func (d *Reader) counts(path string, read func(string, *Counts) error) (Counts, error) {
	c := Counts{At: time.Now()}
	if err := read(path, &c); err != nil {
		return Counts{}, fmt.Errorf("read cgroup %s: %w", path, err)
	}
	return c, nil
}

// open opens a directory; the caller closes it after reading its files.
func (d *directory) open(path string) (err error) {
	d.fd, err = unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return err
}

func (d *directory) close() { _ = unix.Close(d.fd) }

// read returns the content of a file, valid until the next read. It is nil if the file cannot be
// read: kernels differ in their files, and a cgroup may disappear at any time.
func (d *directory) read(name string) []byte {
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

// number reads a file with one number; it returns 0 for "max".
func (d *directory) number(name string) uint64 {
	value, _ := parseNumber(d.read(name))
	return value
}

// pairs reads the numbers of a file with lines "key value".
func (d *directory) pairs(name string, to values) { to.pairs(d.read(name)) }

// pressure reads a file with pressure stall information.
func (d *directory) pressure(name string) *statsapi.PSIStats { return parsePressure(d.read(name)) }
