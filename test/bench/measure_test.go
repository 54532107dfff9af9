// Package bench measures numalet: BenchmarkPods and BenchmarkIdle the built binary, from a manifest
// in the watched directory to its container started, and what the agent costs while nothing
// happens; the others the resource managers by themselves. `make bench` runs all and compares
// with the run before.
//
// The agent, the simulated runtime and the device plugin are processes of their own, as on a real
// node; the runtime takes no time of its own but for the calls themselves. The managers' machines
// are invented, and what is taken on them comes from a fixed seed: every run measures the same
// questions. The figures depend on the machine and on what else it does: compare medians of runs on
// the same quiet machine.
package bench

import (
	"context"
	"io"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/test/cluster/rig"
)

func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	rig.Main(m)
}

// times are the durations of one operation, repeated.
type times []time.Duration

// report adds the median and the 99th percentile, by nearest rank. Times are in ns, which
// benchstat shows in the unit that suits.
func (t times) report(b *testing.B, what string) {
	b.Helper()
	if len(t) == 0 {
		b.Fatal("nothing was measured: ", what)
	}
	slices.Sort(t)
	b.ReportMetric(float64(t[(len(t)-1)/2]), what+"p50-ns")
	b.ReportMetric(float64(t[(len(t)-1)*99/100]), what+"p99-ns")
}

// loop asks questions 0 to n-1, and again, and reports the CPU times of its thread: others who use
// the machine make no difference.
func loop(b *testing.B, n int, ask func(i int)) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var took times
	for i := 0; b.Loop(); i++ {
		took = append(took, timed(func() { ask(i % n) }))
	}
	b.ReportMetric(0, "ns/op") // is by the clock
	took.report(b, "")
}

// timed returns the CPU time of f on this thread (clock_gettime(2)).
func timed(f func()) time.Duration {
	begin := threadTime()
	f()
	return threadTime() - begin
}

func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err) // the clock is as old as threads
	}
	return time.Duration(t.Nano())
}

// runs runs a part until the benchmark ends.
func runs(b *testing.B, part func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- part(ctx) }()
	b.Cleanup(func() {
		cancel()
		must(b, <-ended)
	})
}

// limited returns a context that ends benchmarks that hang.
func limited(b *testing.B) context.Context {
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
	b.Cleanup(cancel)
	return ctx
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
