package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/cri"
)

// The most pods at once, and how long idle ones are looked at; less with -short.
func many() int {
	if testing.Short() {
		return 20
	}
	return 200
}

func idleTime() time.Duration {
	if testing.Short() {
		return 2 * time.Second
	}
	return 30 * time.Second
}

// BenchmarkPods measures the life of pods, from the manifest's rename into the directory (or its
// removal) until the runtime has started (removed) the container, and until the agent's /pods says
// so. The benchmark reads /pods often only for single pods, so that nothing disturbs the agent
// while it starts many. Shared pods request half a CPU; exclusive ones have a CPU and a device.
func BenchmarkPods(b *testing.B) {
	n := startNode(b)
	for _, k := range []kind{shared, exclusive} {
		n.remove(n.start(k, 5), 0) // warms up
	}
	for _, k := range []kind{shared, exclusive} {
		for _, count := range []int{1, many()} {
			b.Run(fmt.Sprintf("%s/at-once=%d", k, count), func(b *testing.B) {
				n.cycles(b, k, count)
			})
		}
	}
	few := many() / 4
	b.Run(fmt.Sprintf("exclusive/at-once=%d/beside=%d", few, many()-few), func(b *testing.B) {
		beside := n.start(shared, many()-few)
		n.cycles(b, exclusive, few)
		n.remove(beside, 0)
	})
}

// BenchmarkIdle measures the agent while many pods run and nothing happens.
func BenchmarkIdle(b *testing.B) {
	n := startNode(b)
	n.start(shared, many())
	time.Sleep(min(5*time.Second, idleTime()))
	before, begin := n.CPU(), time.Now()
	for b.Loop() {
		time.Sleep(idleTime())
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(100*float64(n.CPU()-before)/float64(time.Since(begin)), "%-of-a-core")
	gauges := gauges(n.Get("/metrics"))
	for _, g := range []struct{ metric, unit string }{
		{"go_goroutines", "goroutines"},
		{"go_memstats_heap_alloc_bytes", "heap-B"},
		{"go_memstats_sys_bytes", "go-memory-B"},
		{"process_resident_memory_bytes", "resident-B"},
		{"process_open_fds", "open-files"},
	} {
		value, ok := gauges[g.metric]
		if !ok {
			b.Fatalf("the agent's /metrics has no %s", g.metric)
		}
		b.ReportMetric(value, g.unit)
	}
}

// gauges reads the metrics without labels of a Prometheus text page.
func gauges(page string) map[string]float64 {
	out := map[string]float64{}
	for line := range strings.Lines(page) {
		name, text, ok := strings.Cut(strings.TrimSpace(line), " ")
		if value, err := strconv.ParseFloat(text, 64); ok && err == nil {
			out[name] = value
		}
	}
	return out
}

// kind is a kind of pod.
type kind string

const (
	shared    kind = "shared"
	exclusive kind = "exclusive"
)

const gpu = "example.com/gpu"

func (k kind) manifest(name string) string {
	limits := "{cpu: 500m, memory: 64Mi}"
	if k == exclusive {
		limits = `{cpu: "1", memory: 64Mi, ` + gpu + `: "1"}`
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  containers:
  - name: main
    image: example.com/bench:1
    resources:
      limits: %s
`, name, limits)
}

// pod is one pod's times.
type pod struct {
	name             string
	written, deleted time.Time // its manifest
	started, removed time.Time // in the runtime
	running, gone    time.Time // in the agent's /pods
}

// batch is a set of pods that are started and removed together.
type batch struct {
	pods  []*pod
	since uint64 // the runtime's journal before them
}

// cycles starts pods together, waits until they run, and removes them together, again and again.
func (n *node) cycles(b *testing.B, k kind, count int) {
	var started, running, removed, gone, all times
	var cpu time.Duration
	calls := n.calls()
	for b.Loop() {
		before := n.CPU()
		c := n.start(k, count)
		cpu += n.CPU() - before
		n.remove(c, closely(count))
		var last time.Duration
		for _, p := range c.pods {
			started = append(started, p.started.Sub(p.written))
			running = append(running, p.running.Sub(p.written))
			removed = append(removed, p.removed.Sub(p.deleted))
			gone = append(gone, p.gone.Sub(p.deleted))
			last = max(last, p.started.Sub(c.pods[0].written))
		}
		all = append(all, last)
	}
	pods := float64(len(started))
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(n.calls()-calls)/pods, "runtime-calls/pod")
	started.report(b, "started-")
	removed.report(b, "removed-")
	if count == 1 {
		running.report(b, "running-")
		gone.report(b, "gone-")
		return
	}
	all.report(b, "all-started-")
	b.ReportMetric(float64(cpu)/pods, "agent-cpu-ns/pod")
}

// closely returns how often to read /pods.
func closely(count int) time.Duration {
	if count == 1 {
		return 200 * time.Microsecond
	}
	return 10 * time.Millisecond
}

func (n *node) start(k kind, count int) batch {
	c := batch{since: n.seen}
	for range count {
		n.serial++
		p := &pod{name: fmt.Sprintf("%s-%04d", k, n.serial)}
		must(n.b, os.WriteFile(n.staged(p), []byte(k.manifest(p.name)), 0o644))
		c.pods = append(c.pods, p)
	}
	n.events.reset()
	for _, p := range c.pods {
		p.written = time.Now()
		must(n.b, os.Rename(n.staged(p), n.manifest(p)))
	}
	// A pod is a sandbox and a container. Nobody asks the agent before the last one has started,
	// or the only one.
	n.events.await(n.b, cri.EventStarted, 2*count)
	n.until("all pods are Running", closely(count), func(phases map[string]v1.PodPhase) error {
		var err error
		for _, p := range c.pods {
			switch phase := phases[p.name]; {
			case !p.running.IsZero():
			case phase == v1.PodRunning:
				p.running = time.Now()
			default:
				err = fmt.Errorf("pod %s is %q", p.name, phase)
			}
		}
		return err
	})
	return c
}

func (n *node) staged(p *pod) string   { return filepath.Join(n.Dir, p.name+".staged") }
func (n *node) manifest(p *pod) string { return filepath.Join(n.Manifests, p.name+".yaml") }

// remove removes the manifests, waits until nothing is left of the pods, and completes their times
// from the runtime's journal.
func (n *node) remove(c batch, every time.Duration) {
	n.events.reset()
	for _, p := range c.pods {
		p.deleted = time.Now()
		must(n.b, os.Remove(n.manifest(p)))
	}
	n.events.await(n.b, cri.EventDeleted, 2*len(c.pods))
	n.until("all pods are gone", every, func(phases map[string]v1.PodPhase) error {
		var err error
		for _, p := range c.pods {
			if phase, ok := phases[p.name]; ok {
				err = fmt.Errorf("pod %s is %s", p.name, phase)
			} else if p.gone.IsZero() {
				p.gone = time.Now()
			}
		}
		return err
	})
	n.readJournal(c)
}

// readJournal takes from the runtime when it started the pods' containers and removed the pods.
func (n *node) readJournal(c batch) {
	var calls []crisim.Call
	err := n.runtime.Get(n.b.Context(), fmt.Sprintf("/journal?since=%d", c.since), &calls)
	must(n.b, err)
	byName := map[string]*pod{}
	for _, p := range c.pods {
		byName[p.name] = p
	}
	for _, call := range calls {
		n.seen = max(n.seen, call.Begin)
		p := byName[strings.TrimSuffix(call.Subject.Pod, "-node")]
		if p == nil {
			continue
		}
		switch call.Method {
		case "StartContainer":
			p.started = call.Done
		case "RemovePodSandbox":
			p.removed = call.Done
		}
	}
	for _, p := range c.pods {
		if p.started.IsZero() || p.removed.IsZero() {
			n.b.Fatalf("the runtime's journal lacks the start or the end of pod %s", p.name)
		}
	}
}
