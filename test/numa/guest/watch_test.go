package guest_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// watchedNode is what was left of the machine at least while it was watched.
type watchedNode struct {
	began        time.Time
	memory, disk int // MiB
	threads      int
	kills        int // by the kernel, for want of memory
	// speed is how fast memory was taken, in MiB/s.
	speed float64
}

func (w watchedNode) String() string {
	return fmt.Sprintf("%d MiB of memory left at least (%.0f MiB/s), %d MiB of disk, %d threads; %d OOM kills",
		w.memory, w.speed, w.disk, w.threads, w.kills)
}

// watch looks at the machine until the returned function is called.
func watch(t *testing.T) func() watchedNode {
	t.Helper()
	first := look(t)
	least, kills := first, first.kills
	stop, stopped := make(chan struct{}), make(chan struct{})
	var from time.Time // when 200 MiB were taken
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			now := look(t)
			least.memory, least.disk = min(least.memory, now.memory), min(least.disk, now.disk)
			least.threads, least.kills = min(least.threads, now.threads), now.kills-kills
			switch taken := first.memory - now.memory; {
			case taken < 200:
			case from.IsZero():
				from = time.Now()
			case taken > 700 && least.speed == 0:
				least.speed = 500 / time.Since(from).Seconds()
			}
		}
	}()
	least.began, least.kills = time.Now().Truncate(time.Second), 0
	return func() watchedNode {
		close(stop)
		<-stopped
		return least
	}
}

// look reads what is left now, and all kills so far.
func look(t *testing.T) (w watchedNode) {
	w.memory = meminfo(t, "MemAvailable:") >> 20
	var disk unix.Statfs_t
	if err := unix.Statfs("/", &disk); err == nil {
		w.disk = int(disk.Bavail*uint64(disk.Bsize)) >> 20
	}
	if fields := strings.Fields(said(t, "/proc/loadavg")); len(fields) > 3 {
		_, all, _ := strings.Cut(fields[3], "/")
		threads, _ := strconv.Atoi(all)
		w.threads = saidNumber(t, "/proc/sys/kernel/pid_max") - threads
	}
	text, _ := os.ReadFile("/proc/vmstat")
	_, after, _ := strings.Cut(string(text), "\noom_kill ")
	w.kills, _ = strconv.Atoi(strings.SplitN(after, "\n", 2)[0])
	return w
}
