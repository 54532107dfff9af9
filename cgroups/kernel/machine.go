package kernel

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"time"

	oci "github.com/opencontainers/cgroups"
	"github.com/prometheus/procfs"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"
)

// Proc reads the machine's statistics in /proc.
type Proc struct {
	root string
	fs   procfs.FS
}

// NewProc returns a reader of root; "" means /proc.
func NewProc(root string) (Proc, error) {
	root = cmp.Or(root, procfs.DefaultMountPoint)
	p, err := procfs.NewFS(root)
	if err != nil {
		return Proc{}, fmt.Errorf("open %s: %w", root, err)
	}
	return Proc{root, p}, nil
}

// BootTime returns the time at which the kernel was started.
func (p Proc) BootTime() (time.Time, error) {
	s, err := p.fs.Stat()
	if err != nil {
		return time.Time{}, fmt.Errorf("read boot time: %w", err)
	}
	return time.Unix(int64(s.BootTime), 0), nil
}

// MachineMemory holds the machine's memory and swap in bytes. HugePages counts the allocated
// huge pages, used or not; Free does not contain them.
type MachineMemory struct{ Total, Free, HugePages, SwapTotal, SwapFree uint64 }

// Memory returns the memory of the whole machine.
func (p Proc) Memory() (MachineMemory, error) {
	m, err := p.fs.Meminfo()
	if err != nil {
		return MachineMemory{}, fmt.Errorf("read memory of the machine: %w", err)
	}
	return MachineMemory{
		ptr.Deref(m.MemTotalBytes, 0), ptr.Deref(m.MemFreeBytes, 0), ptr.Deref(m.HugetlbBytes, 0),
		ptr.Deref(m.SwapTotalBytes, 0), ptr.Deref(m.SwapFreeBytes, 0),
	}, nil
}

// Pressure returns the pressure on the whole machine.
func (p Proc) Pressure() Pressure {
	return Pressure{p.pressure("cpu"), p.pressure("memory"), p.pressure("io")}
}

func (p Proc) pressure(resource string) *statsapi.PSIStats {
	text, err := os.ReadFile(filepath.Join(p.root, "pressure", resource))
	if err != nil { // the kernel does not report it
		return nil
	}
	return parsePressure(text)
}

// Threads returns the number of the machine's threads, and its limit.
func (p Proc) Threads() (current, limit int64, err error) {
	text, err := os.ReadFile(filepath.Join(p.root, "loadavg"))
	if err != nil {
		return 0, 0, fmt.Errorf("read threads of the machine: %w", err)
	}
	fields := bytes.Fields(text) // 0.20 0.18 0.12 1/80 11206
	if len(fields) < 4 {
		return 0, 0, fmt.Errorf("read threads of the machine: unexpected loadavg %q", text)
	}
	_, all, _ := bytes.Cut(fields[3], []byte{'/'})
	count, _ := parseNumber(all)
	for _, name := range []string{"sys/kernel/pid_max", "sys/kernel/threads-max"} {
		text, err := os.ReadFile(filepath.Join(p.root, name))
		if err != nil {
			return 0, 0, fmt.Errorf("read limit of threads: %w", err)
		}
		if n, ok := parseNumber(text); ok && (limit == 0 || int64(n) < limit) {
			limit = int64(n)
		}
	}
	return int64(count), limit, nil
}

// OwnGroup returns the cgroup of this process, relative to the mount point of the controller memory
// or of cgroup v2.
func (p Proc) OwnGroup() (string, error) {
	groups, err := oci.ParseCgroupFile(filepath.Join(p.root, "self", "cgroup"))
	if err != nil {
		return "", fmt.Errorf("find own cgroup: %w", err)
	}
	if path, ok := groups["memory"]; ok {
		return path, nil
	}
	return groups[""], nil
}

// UpperDir returns the directory that has what a process changed of its root, an overlay; "": it is not
// known.
func (p Proc) UpperDir(pid int) string {
	proc, err := p.fs.Proc(pid)
	if err != nil {
		return ""
	}
	mounts, err := proc.MountInfo()
	if err != nil {
		return ""
	}
	for _, m := range mounts {
		if m.MountPoint == "/" && m.FSType == "overlay" {
			return m.SuperOptions["upperdir"]
		}
	}
	return ""
}
