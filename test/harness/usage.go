package harness

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
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
	raw := proc(t, pid, "stat")
	// The name in parentheses may hold anything; state is the first field after it.
	_, rest, _ := strings.Cut(raw, ") ")
	fields := strings.Fields(rest)
	if len(fields) < 15 {
		t.Fatalf("%d fields in %s", len(fields), raw)
	}
	var sum time.Duration
	var failed error
	for _, text := range fields[11:15] { // utime, stime, cutime, cstime
		ticks, err := strconv.ParseInt(text, 10, 64)
		failed = errors.Join(failed, err)
		sum += time.Duration(ticks) * cpuTick
	}
	if failed != nil {
		t.Fatal(failed)
	}
	return sum
}

// MemoryMiB is what a line of a process's /proc/PID/status says, such as VmRSS for what it has in
// memory and VmHWM for the most that it ever had (proc_pid_status(5)).
func MemoryMiB(t testing.TB, pid int, line string) float64 {
	t.Helper()
	_, rest, _ := strings.Cut(proc(t, pid, "status"), line+":")
	value, _, _ := strings.Cut(strings.TrimSpace(rest), " kB")
	kib, err := strconv.ParseFloat(value, 64)
	if err != nil {
		t.Fatalf("%s of process %d: %v", line, pid, err)
	}
	return kib / 1024
}

func proc(t testing.TB, pid int, file string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
