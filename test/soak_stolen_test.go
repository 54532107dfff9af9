package test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// soakStolen is the share of CPU time that the host may steal. Above it, measured times say nothing
// about the agent.
const soakStolen = 0.05

// cpuTime holds the machine's CPU time in ticks (proc(5), the first line of /proc/stat).
type cpuTime struct{ all, stolen uint64 }

func cpuTimeNow(t *testing.T) cpuTime {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	at, err := parseCPUTime(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// parseCPUTime adds user, nice, system, idle, iowait, irq, softirq and steal. The guests' time is
// part of user already.
func parseCPUTime(stat string) (at cpuTime, err error) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return at, fmt.Errorf("/proc/stat begins with %q", line)
	}
	for i, text := range fields[1:9] {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return at, fmt.Errorf("/proc/stat: %w", err)
		}
		at.all += n
		if i == 7 {
			at.stolen = n
		}
	}
	return at, nil
}

// stolenSince returns the share of the time since before that the host stole.
func (t cpuTime) stolenSince(before cpuTime) float64 {
	if t.all <= before.all || t.stolen <= before.stolen {
		return 0
	}
	return float64(t.stolen-before.stolen) / float64(t.all-before.all)
}

func TestStolen(t *testing.T) {
	before, err := parseCPUTime("cpu  10 0 10 70 0 5 5 0 3 0\ncpu0 1 2 3\n")
	if err != nil || before != (cpuTime{all: 100}) {
		t.Fatalf("%+v, %v", before, err)
	}
	after, err := parseCPUTime("cpu  20 0 20 140 0 5 5 10 3 0\n")
	if got := after.stolenSince(before); err != nil || got != 0.1 {
		t.Errorf("%v stolen, %v", got, err)
	}
	if got := before.stolenSince(after); got != 0 {
		t.Errorf("time that went back: %v", got)
	}
	for _, bad := range []string{"", "cpu 1 2 3", "cpu a 1 1 1 1 1 1 1", "intr 1 1 1 1 1 1 1 1"} {
		if _, err := parseCPUTime(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
	_ = cpuTimeNow(t)
}
