// Command bench measures the agent's own overhead: from a manifest in the watched directory to
// its container started, and what the agent costs while nothing happens; then the resource managers
// by themselves.
//
// The agent, the simulated runtime and the device plugin are processes of their own, as on a real
// node; the runtime takes no time of its own but for the calls themselves. When a container was
// started is read from the runtime's journal afterwards, so that nobody asks the agent anything
// while it works. The figures depend on the machine and on what else it does: compare medians of
// runs on the same quiet machine.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"
)

// limit ends a run that hangs.
const limit = 10 * time.Minute

// options are the sizes of a run.
type options struct {
	binary, out string
	singles     int // pods one at a time
	many        int // pods at once, and idle
	rounds      int
	idle        time.Duration
	pods        bool
	managers    bool
}

func main() {
	var o options
	flag.StringVar(&o.binary, "binary", "bin/numalet", "the numalet to measure")
	flag.StringVar(&o.out, "out", "", "file for the figures as one flat JSON object (none)")
	flag.IntVar(&o.singles, "singles", 60, "how many pods to start one at a time")
	flag.IntVar(&o.many, "many", 200, "how many pods to start at once, at most 240")
	flag.IntVar(&o.rounds, "rounds", 3, "how often to start many at once")
	flag.DurationVar(&o.idle, "idle", 30*time.Second, "how long to look at idle pods")
	flag.BoolVar(&o.pods, "pods", true, "measure the life of pods through the agent")
	flag.BoolVar(&o.managers, "managers", true, "measure the resource managers by themselves")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	report, err := newFigures(o)
	if err != nil {
		return err
	}
	if o.pods {
		if err := pods(ctx, o, report); err != nil {
			return err
		}
		report.print(os.Stdout)
	}
	if o.managers {
		if err := report.managers(ctx); err != nil {
			return err
		}
		report.printTables(os.Stdout)
	}
	return report.write(o.out)
}

// pods measures what the agent adds to the life of pods.
func pods(ctx context.Context, o options, report *figures) (err error) {
	n, err := startNode(ctx, o.binary)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.stop(err != nil)) }()
	progress("warming up")
	for _, k := range []kind{shared, exclusive} {
		if _, err := n.cycle(ctx, k, 5, nil); err != nil {
			return err
		}
	}
	for _, k := range []kind{shared, exclusive} {
		progress("%d %s pods, one at a time", o.singles, k)
		s := series{kind: k, count: 1}
		for range o.singles {
			c, err := n.cycle(ctx, k, 1, &poll{every: 200 * time.Microsecond})
			if err != nil {
				return err
			}
			s.add(c)
		}
		report.add(s)
	}
	for _, k := range []kind{shared, exclusive} {
		s, err := n.together(ctx, k, o.many, o.rounds)
		if err != nil {
			return err
		}
		report.add(s)
	}
	if err := n.mixed(ctx, o, report); err != nil {
		return err
	}
	if err := n.idle(ctx, o, report); err != nil {
		return err
	}
	return nil
}

// together starts many pods at once, some rounds; the last one watches the agent's /pods too.
func (n *node) together(ctx context.Context, k kind, count, rounds int) (series, error) {
	s := series{kind: k, count: count}
	for i := range rounds {
		progress("%d %s pods at once, round %d of %d", count, k, i+1, rounds)
		var watch *poll
		if i == rounds-1 && rounds > 1 {
			watch = &poll{every: 25 * time.Millisecond}
		}
		c, err := n.cycle(ctx, k, count, watch)
		if err != nil {
			return s, err
		}
		s.add(c)
	}
	return s, nil
}

// mixed starts exclusive pods at once beside shared ones that run: each start takes CPUs from all
// of them.
func (n *node) mixed(ctx context.Context, o options, report *figures) error {
	few := o.many / 4
	running, err := n.start(ctx, shared, o.many-few, nil)
	if err != nil {
		return err
	}
	s := series{kind: exclusive, count: few, beside: o.many - few}
	for i := range o.rounds {
		progress("%d exclusive pods at once beside %d shared ones, round %d of %d",
			few, o.many-few, i+1, o.rounds)
		c, err := n.cycle(ctx, exclusive, few, nil)
		if err != nil {
			return err
		}
		s.add(c)
	}
	report.add(s)
	return n.remove(ctx, running, nil)
}

// idle looks at what the agent costs while many pods run and nothing happens.
func (n *node) idle(ctx context.Context, o options, report *figures) error {
	if _, err := n.start(ctx, shared, o.many, nil); err != nil {
		return err
	}
	progress("%d pods idle for %v", o.many, o.idle)
	if err := pause(ctx, 5*time.Second); err != nil {
		return err
	}
	before, err := n.agent.cpu()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := pause(ctx, o.idle); err != nil {
		return err
	}
	after, err := n.agent.cpu()
	if err != nil {
		return err
	}
	percent := 100 * float64(after-before) / float64(time.Since(start))
	return n.inspect(report, o.many, percent)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// write puts the figures into a file; "" is none.
func (f *figures) write(path string) error {
	if path == "" {
		return nil
	}
	raw, err := json.MarshalIndent(f.values, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(raw, '\n'), 0o644)
}
