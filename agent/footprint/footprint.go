// Package footprint keeps what the agent counts for in memory at what it uses.
//
// Go programs of this size touch all of their file when they start, once: each of a thousand packages
// has something to set up, and the kernel maps what is around it as well (fault-around). The agent
// needs a third of that later. Pages of the file that are let go cost a minor fault when they are
// needed again, and until then the kernel may take them for something else without looking for who
// maps them.
//
// What a burst of pods had the heap grow to, the Go runtime gives back within many minutes, and not all of
// it. It is collected and given back at once, which takes the time of one garbage collection.
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

// smaps is where the kernel tells of a process's mappings (proc_pid_smaps(5)).
const smaps = "/proc/self/smaps"

// mapping is a range of addresses.
type mapping struct{ from, to uintptr }

// LetGo gives back the heap's garbage and unmaps the pages of the program's own file. What comes back
// by itself is what is used.
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
			return nil // somebody has locked the agent's memory, who knows why
		}
		if e != 0 {
			return fmt.Errorf("let go of the program's pages at %#x: %w", m.from, e)
		}
	}
	return nil
}

// untouched are the mappings of a file that have nothing but what the file has. Others must stay:
// data, and code into which a debugger or a tracer has put breakpoints.
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
