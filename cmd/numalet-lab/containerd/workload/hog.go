package workload

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// hog holds the flags of "container hog": what it takes in a second.
type hog struct {
	memory, disk, threads int
	file                  string
	ignoreTerm            bool
}

func hogCommand() *cobra.Command {
	var h hog
	c := &cobra.Command{
		Use:   "hog",
		Short: "Take memory, disk and threads until told to stop, or nothing is left",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return h.run(c.Context()) },
	}
	f := c.Flags()
	f.IntVar(&h.memory, "memory", 0, "MiB of memory in a second")
	f.IntVar(&h.disk, "disk", 0, "MiB on disk in a second")
	f.IntVar(&h.threads, "threads", 0, "threads in a second")
	f.StringVar(&h.file, "file", "/tmp/hog", "where it writes")
	f.BoolVar(&h.ignoreTerm, "ignore-term", false, "do not exit on SIGTERM")
	return c
}

// ticks are how often in a second the hog takes a part.
const ticks = 20

func (h hog) run(ctx context.Context) error {
	if h.ignoreTerm {
		signal.Ignore(syscall.SIGTERM) // as the first process of a container would not end otherwise
	} else {
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, syscall.SIGTERM)
		defer stop()
	}
	debug.SetMaxThreads(1 << 20) // what is left is the kernel's to say
	file, err := os.Create(h.file)
	if err != nil {
		return err
	}
	defer file.Close()
	// Since it began: a tick that comes late takes what was missed.
	began, block := time.Now(), make([]byte, 1<<20)
	var memory, disk, threads int
	var arena []byte
	tick := time.Tick(time.Second / ticks)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		}
		due := func(each int) int { return int(time.Since(began).Seconds() * float64(each)) }
		for ; memory < due(h.memory); memory++ {
			if len(arena) == 0 {
				if arena, err = reserve(); err != nil {
					return fmt.Errorf("after %d MiB of memory: %w", memory, err)
				}
			}
			for i := 0; i < 1<<20; i += os.Getpagesize() {
				arena[i] = 1
			}
			arena = arena[1<<20:]
		}
		for ; disk < due(h.disk); disk++ {
			if _, err := file.Write(block); err != nil {
				return fmt.Errorf("after %d MiB on disk: %w", disk, err)
			}
		}
		for ; threads < due(h.threads); threads++ {
			go func() {
				runtime.LockOSThread()
				_ = unix.Pause() // until the process ends
			}()
		}
	}
}

// reserve maps memory that is there once it is used, until the process exits, in huge pages if the
// kernel gives them: an emulator takes long for each fault.
func reserve() ([]byte, error) {
	memory, err := unix.Mmap(-1, 0, 256<<20, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err == nil {
		_ = unix.Madvise(memory, unix.MADV_HUGEPAGE) // a kernel may have none
	}
	return memory, err
}
