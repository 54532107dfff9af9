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

// CPU is the CPU time that the agent has used, with that of the programs that it waited for.
func (n *Node) CPU() time.Duration {
	n.t.Helper()
	return CPU(n.t, n.PID())
}

// CPU is the CPU time that a process has used, with that of the programs that it waited for.
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

// MemoryMiB is what a line of a process's /proc/PID/status says, such as VmRSS for what it has in
// memory and VmHWM for the most that it ever had (proc_pid_status(5)).
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
