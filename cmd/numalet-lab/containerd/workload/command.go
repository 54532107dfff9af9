package workload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// Command returns the command "container" with the programs that our images start. It is hidden:
// only containers call it.
func Command() *cobra.Command {
	c := &cobra.Command{
		Use:    "container",
		Short:  "What runs in the containers of the examples",
		Hidden: true,
	}
	c.AddCommand(pauseCommand(), workCommand(), hogCommand())
	return c
}

func pauseCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "pause",
		Short: "Reap children until told to stop: the first process of a pod",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return pause(c.Context())
		},
	}
}

func pause(ctx context.Context) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	defer signal.Stop(signals)
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-signals:
			if s != syscall.SIGCHLD {
				return nil
			}
		}
		for pid := 1; pid > 0; {
			pid, _ = syscall.Wait4(-1, nil, syscall.WNOHANG, nil) // ECHILD: none is left
		}
	}
}

// work holds the flags of "container work".
type work struct {
	print      bool
	out        string
	message    string
	exit       int
	after      time.Duration
	ignoreTerm bool
	counting   time.Duration
	allocate   int
	huge       int
}

func workCommand() *cobra.Command {
	var w work
	c := &cobra.Command{
		Use:   "work",
		Short: "Tell what the container sees, then wait or exit",
		Args:  cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			once := c.Flags().Changed("exit") || c.Flags().Changed("after")
			if err := w.run(c.Context(), once); err != nil {
				return err
			}
			// The exit code is the one asked for. A returned error would be printed and become 1.
			os.Exit(w.exit)
			return nil
		},
		SilenceUsage: true,
	}
	f := c.Flags()
	f.BoolVar(&w.print, "print", false, "write a report of what the container sees, as JSON")
	f.StringVar(&w.out, "out", "", "file for the report instead of standard output")
	f.StringVar(&w.message, "message", "", "text for the termination message")
	f.IntVar(&w.exit, "exit", 0, "the exit code; also, do not wait for SIGTERM")
	f.DurationVar(&w.after, "after", 0, "exit after so long, not on SIGTERM only")
	f.IntVar(&w.allocate, "allocate", 0, "use so many MiB of memory, from after the report on")
	f.IntVar(&w.huge, "allocate-huge", 0, "the same, in huge pages of the usual size")
	f.DurationVar(&w.counting, "count", 0, "write a line with its number each time so long is over")
	f.BoolVar(&w.ignoreTerm, "ignore-term", false, "do not exit on SIGTERM")
	return c
}

func (w work) run(ctx context.Context, once bool) error {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	defer signal.Stop(term)
	if w.ignoreTerm {
		term = nil
	}
	if err := w.report(); err != nil {
		return err
	}
	if w.message != "" {
		if err := os.WriteFile("/dev/termination-log", []byte(w.message), 0o644); err != nil {
			return err
		}
	}
	memory := bytes.Repeat([]byte{1}, w.allocate<<20)
	defer runtime.KeepAlive(memory)
	if err := useHuge(w.huge << 20); err != nil {
		return err
	}
	var end, next <-chan time.Time
	if once {
		end = time.After(w.after)
	}
	if w.counting > 0 {
		next = time.Tick(w.counting)
	}
	for n := 0; ; n++ {
		select {
		case <-next:
			fmt.Println("line", n)
		case <-end:
			return nil
		case <-term:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// useHuge maps and touches memory in huge pages, and keeps it until the process exits.
func useHuge(bytes int) error {
	if bytes == 0 {
		return nil
	}
	memory, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB)
	if err != nil {
		return fmt.Errorf("take %d bytes in huge pages: %w", bytes, err)
	}
	for i := 0; i < len(memory); i += os.Getpagesize() {
		memory[i] = 1
	}
	return nil
}

func (w work) report() (err error) {
	if !w.print && w.out == "" {
		return nil
	}
	r, err := Look()
	if err != nil {
		return fmt.Errorf("look around: %w", err)
	}
	if w.out == "" {
		return r.Write(os.Stdout)
	}
	f, err := os.Create(w.out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return r.Write(f)
}
