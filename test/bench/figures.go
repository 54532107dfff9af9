package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/numalet/numalet/test/bench/managers"
)

// series is what cycles of the same kind and size gave together.
type series struct {
	kind   kind
	count  int // pods at once
	beside int // shared pods that ran meanwhile

	started, running, removed, gone []time.Duration
	cpu                             time.Duration
	calls                           int             // of the runtime
	all                             []time.Duration // until the last pod of each cycle had started
}

func (s *series) add(c *cycle) {
	var all time.Duration
	for _, p := range c.pods {
		s.started = append(s.started, p.started.Sub(p.written))
		s.removed = append(s.removed, p.removed.Sub(p.deleted))
		s.gone = append(s.gone, p.gone.Sub(p.deleted))
		if c.watched {
			s.running = append(s.running, p.running.Sub(p.written))
		}
		all = max(all, p.started.Sub(c.pods[0].written))
	}
	s.all = append(s.all, all)
	s.cpu += c.cpu
	s.calls += c.calls
}

// callsPerPod is from the first manifest to the last pod's end.
func (s *series) callsPerPod() float64 { return round2(float64(s.calls) / float64(len(s.started))) }

// percentile is by nearest rank.
func percentile(times []time.Duration, percent int) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	rank := (len(sorted)*percent + 99) / 100
	return sorted[max(rank, 1)-1]
}

func ms(d time.Duration) float64 { return float64(d.Round(time.Microsecond)) / 1e6 }

// figures are the result: by name for files, as lines for people.
type figures struct {
	values map[string]float64
	series []series
	many   int
	tables []*managers.Table
}

// newFigures notes how busy the machine is before the run: the figures are worth little when it is.
func newFigures(o options) (*figures, error) {
	f := &figures{values: map[string]float64{"cores": float64(runtime.NumCPU())}, many: o.many}
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return nil, err
	}
	load, _, _ := strings.Cut(string(raw), " ")
	f.values["load_before"], err = strconv.ParseFloat(load, 64)
	return f, err
}

func (f *figures) add(s series) {
	f.series = append(f.series, s)
	prefix, suffix := "pod_", fmt.Sprintf("_%d", s.count)
	if s.kind == exclusive {
		prefix = "exclusive_pod_"
	}
	if s.beside > 0 {
		suffix += fmt.Sprintf("_beside_%d", s.beside)
	}
	for _, part := range []struct {
		name  string
		times []time.Duration
	}{
		{"overhead", s.started}, {"running", s.running}, {"removed", s.removed}, {"gone", s.gone},
	} {
		if len(part.times) > 0 {
			f.values[prefix+part.name+"_p50_ms"+suffix] = ms(percentile(part.times, 50))
			f.values[prefix+part.name+"_p99_ms"+suffix] = ms(percentile(part.times, 99))
		}
	}
	f.values[prefix+"runtime_calls"+suffix] = s.callsPerPod()
	if s.count > 1 {
		f.values[prefix+"all_started_ms"+suffix] = ms(percentile(s.all, 50))
		f.values[prefix+"cpu_ms"+suffix] = ms(s.cpu / time.Duration(len(s.started)))
	}
}

// inspect adds what the agent says of itself to the CPU time that it used idle.
func (n *node) inspect(f *figures, many int, cpuPercent float64) error {
	raw, err := n.get("/metrics")
	if err != nil {
		return err
	}
	gauges := parseGauges(raw)
	for _, g := range []struct {
		metric, name string
		unit         float64
	}{
		{"go_goroutines", "goroutines", 1},
		{"go_memstats_heap_alloc_bytes", "heap_mib", 1 << 20},
		{"go_memstats_sys_bytes", "go_memory_mib", 1 << 20},
		{"process_resident_memory_bytes", "rss_mib", 1 << 20},
		{"process_open_fds", "open_files", 1},
	} {
		value, ok := gauges[g.metric]
		if !ok {
			return fmt.Errorf("the agent's /metrics has no %s", g.metric)
		}
		f.values[fmt.Sprintf("%s_%d", g.name, many)] = round2(value / g.unit)
	}
	f.values[fmt.Sprintf("idle_cpu_percent_%d", many)] = round2(cpuPercent)
	return nil
}

func round2(v float64) float64 { return float64(int64(v*100+0.5)) / 100 }

// parseGauges reads the metrics without labels of a Prometheus text page.
func parseGauges(page []byte) map[string]float64 {
	out := map[string]float64{}
	lines := bufio.NewScanner(bytes.NewReader(page))
	for lines.Scan() {
		name, text, ok := strings.Cut(lines.Text(), " ")
		if value, err := strconv.ParseFloat(text, 64); ok && err == nil {
			out[name] = value
		}
	}
	return out
}

// print writes a table for people.
func (f *figures) print(w io.Writer) {
	fmt.Fprint(w, `
Milliseconds per pod, median / 99th percentile, from the manifest's rename into the directory (or
its removal) on. The runtime is a process of its own and takes no time but for the calls.
`)
	fmt.Fprintf(w, "%.0f cores; load average before the run %.2f\n\n", f.values["cores"],
		f.values["load_before"])
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PODS\tSTARTED IN RUNTIME\tRUNNING IN /pods\tREMOVED FROM RUNTIME\tGONE FROM "+
		"/pods\tALL STARTED\tAGENT CPU\tRUNTIME CALLS")
	for _, s := range f.series {
		what := fmt.Sprintf("%d %s at once", s.count, s.kind)
		if s.count == 1 {
			what = fmt.Sprintf("%s, one at a time", s.kind)
		}
		if s.beside > 0 {
			what += fmt.Sprintf(" beside %d shared", s.beside)
		}
		all, cpu := "-", "-"
		if s.count > 1 {
			all = fmt.Sprintf("%.0f", ms(percentile(s.all, 50)))
			cpu = fmt.Sprintf("%.2f", ms(s.cpu/time.Duration(len(s.started))))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.1f\n", what, pair(s.started),
			pair(s.running), pair(s.removed), pair(s.gone), all, cpu, s.callsPerPod())
	}
	_ = t.Flush() // a terminal that is gone needs no table
	value := func(name string) float64 { return f.values[fmt.Sprintf("%s_%d", name, f.many)] }
	fmt.Fprintf(w, "\n%d pods idle: %.2f %% of a core, %.0f goroutines, heap %.1f MiB, "+
		"resident %.1f MiB, %.0f open files\n", f.many, value("idle_cpu_percent"),
		value("goroutines"), value("heap_mib"), value("rss_mib"), value("open_files"))
}

func pair(times []time.Duration) string {
	if len(times) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f / %.2f", ms(percentile(times, 50)), ms(percentile(times, 99)))
}
