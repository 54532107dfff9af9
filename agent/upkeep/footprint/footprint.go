// Package footprint reduces the agent's memory to what it uses.
//
// At its start a Go program of this size touches its whole file once: each of a thousand packages
// initializes something, and the kernel also maps the surrounding pages (fault-around). The agent
// later needs a third of these. A page that is unmapped costs a minor fault when it is needed
// again, and until then the kernel can reclaim it without searching for its mappings.
//
// The Go runtime returns what the heap grew to during a burst of pods only after many minutes, and
// not completely. LetGo collects and returns it at once, for the price of one garbage collection.
package footprint

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// garbagePercent is how much garbage may come on top of what is alive before it is collected (GOGC).
// With Go's 100, a fifth of the CPU time of a burst of pods goes into collections.
const garbagePercent = 200

// Spend lets the heap grow with garbagePercent, unless the environment sets GOGC. What a burst of
// pods adds, LetGo returns.
func Spend() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
}

// smaps is the kernel's list of a process's mappings (proc_pid_smaps(5)).
const smaps = "/proc/self/smaps"

// mapping is a range of addresses.
type mapping struct{ from, to uintptr }

// LetGo returns the heap's garbage and unmaps the pages of the program's file. Pages that are used
// come back by themselves.
func LetGo(context.Context) error {
	debug.FreeOSMemory()
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	f, err := os.Open(smaps)
	if err != nil {
		return err
	}
	defer f.Close()
	all, err := untouched(f, program)
	if err != nil {
		return fmt.Errorf("read %s: %w", smaps, err)
	}
	for _, m := range all {
		_, _, e := unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED)
		if e == unix.EINVAL {
			return nil // the agent's memory is locked, for whatever reason
		}
		if e != 0 {
			return fmt.Errorf("let go of the program's pages at %#x: %w", m.from, e)
		}
	}
	return nil
}

// untouched returns the mappings of a file that contain only the file's content. Others must stay:
// data, and code in which a debugger or tracer has set breakpoints.
func untouched(maps io.Reader, file string) (all []mapping, err error) {
	var now mapping
	var ours bool
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		line := lines.Text()
		var m mapping
		var permissions string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &m.from, &m.to, &permissions); n == 3 {
			now, ours = m, strings.HasPrefix(permissions, "r-") && strings.HasSuffix(line, " "+file)
			continue
		}
		var size int
		if n, _ := fmt.Sscanf(line, "Anonymous: %d kB", &size); n == 1 && ours && size == 0 {
			all = append(all, now)
		}
	}
	return all, lines.Err()
}
