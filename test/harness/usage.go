package harness

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
)

// cpuTick is the unit of times in /proc/PID/stat, the same on every Linux (proc_pid_stat(5)).
const cpuTick = 10 * time.Millisecond

// CPU returns the CPU time that the agent and the child processes it has waited for have used.
func (n *Node) CPU() time.Duration {
	n.t.Helper()
	return CPU(n.t, n.PID())
}

// CPU returns the CPU time that a process and the child processes it has waited for have used.
func CPU(t testing.TB, pid int) time.Duration {
	t.Helper()
	p, err := procfs.NewProc(pid)
	var stat procfs.ProcStat
	if err == nil {
		stat, err = p.Stat()
	}
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(int(stat.UTime+stat.STime)+stat.CUTime+stat.CSTime) * cpuTick
}

// MemoryMiB returns the value of a line of /proc/PID/status in MiB, such as VmRSS for the resident
// memory and VmHWM for its peak (proc_pid_status(5)).
func MemoryMiB(t testing.TB, pid int, line string) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), line+":")
	value, _, _ := strings.Cut(strings.TrimSpace(rest), " kB")
	kib, err := strconv.ParseFloat(value, 64)
	if err != nil {
		t.Fatalf("%s of process %d: %v", line, pid, err)
	}
	return kib / 1024
}
