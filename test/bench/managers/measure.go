// Package managers measures the resource managers by themselves: merges, CPU choice, devices,
// admissions. Each measurement makes a Table for people and Values for files.
//
// The machines are invented, and what is taken on them comes from a fixed seed: every run measures
// the same questions. Times are CPU times on this machine; compare those of one run.
package managers

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Table is one part of the report.
type Table struct {
	Title   string
	Note    string // what the figures are
	Columns []string
	Rows    [][]string
	// Values are figures by name.
	Values map[string]float64
}

func newTable(title, note string, columns ...string) *Table {
	return &Table{Title: title, Note: note, Columns: columns, Values: map[string]float64{}}
}

func (t *Table) row(cells ...string) { t.Rows = append(t.Rows, cells) }

// Each measurement repeats what it measures for about this long.
const (
	budget = 400 * time.Millisecond
	most   = 5000
)

// times are those of one question asked again and again, in ascending order.
type times []time.Duration

// measure asks the questions one after the other until the budget is spent, each at least once. It
// counts the CPU time of its thread: others who use the machine make no difference.
func measure(questions int, ask func(i int)) times {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var took times
	for i, begin := 0, threadTime(); i < questions || i < most && threadTime()-begin < budget; i++ {
		before := threadTime()
		ask(i % questions)
		took = append(took, threadTime()-before)
	}
	took.sort()
	return took
}

// threadTime is the CPU time of this thread (clock_gettime(2)).
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err) // the clock is as old as threads
	}
	return time.Duration(t.Nano())
}

func (t times) sort()              { slices.Sort(t) }
func (t times) p50() time.Duration { return t[(len(t)-1)/2] }
func (t times) p99() time.Duration { return t[(len(t)-1)*99/100] }

// String is the median and the 99th percentile.
func (t times) String() string { return short(t.p50()) + " / " + short(t.p99()) }

// short has three digits and a unit.
func short(d time.Duration) string {
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "µs"}} {
		if d >= unit.length {
			return fmt.Sprintf("%.3g %s", float64(d)/float64(unit.length), unit.name)
		}
	}
	return fmt.Sprintf("%d ns", d)
}

// ms is for Values.
func ms(d time.Duration) float64 { return float64(d.Nanoseconds()/100) / 1e4 }
