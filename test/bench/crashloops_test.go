package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cri"
)

// crashing returns how many pods crash at once, each again after a second; fewer with -short.
func crashing() int {
	if testing.Short() {
		return 50
	}
	return 1000
}

// crashLoop ends with code 1 at once, as the simulated runtime reads the image.
const crashLoop = `apiVersion: v1
kind: Pod
metadata: {name: crash-%04d}
spec:
  containers:
  - {name: main, image: example.com/exit:1}
`

// BenchmarkBesideCrashLoops measures the life of an exclusive pod beside pods that crash at once,
// each again after a second: as many starts a second as there are such pods, if the machine does
// that many.
func BenchmarkBesideCrashLoops(b *testing.B) {
	n := startNodeWith(b, map[string]any{
		"maxPods":          crashing() + 10,
		"crashLoopBackOff": map[string]string{"maxContainerRestartPeriod": "1s"},
	})
	for i := range crashing() {
		name := fmt.Sprintf("crash-%04d", i)
		staged := filepath.Join(n.Dir, name)
		must(b, os.WriteFile(staged, fmt.Appendf(nil, crashLoop, i), 0o644))
		must(b, os.Rename(staged, filepath.Join(n.Manifests, name+".yaml")))
	}
	n.until("each has started once: until then they come before who is newer", time.Second,
		func(phases map[string]v1.PodPhase) error {
			running := 0
			for _, phase := range phases {
				if phase == v1.PodRunning {
					running++
				}
			}
			if running < crashing() {
				return fmt.Errorf("%d of %d have", running, crashing())
			}
			return nil
		})
	var started, running times
	n.events.reset()
	since := time.Now()
	for b.Loop() {
		p := n.besideOthers()
		started = append(started, p.started.Sub(p.written))
		running = append(running, p.running.Sub(p.written))
	}
	b.ReportMetric(0, "ns/op") // has the removal in it
	starts := n.events.of(cri.EventStarted)
	b.ReportMetric(float64(starts)/time.Since(since).Seconds(), "starts/s")
	started.report(b, "started-")
	running.report(b, "running-")
}

// besideOthers runs one exclusive pod, followed by /pods, as the events are of all pods.
func (n *node) besideOthers() *pod {
	n.serial++
	p := &pod{name: fmt.Sprintf("%s-%04d", exclusive, n.serial)}
	since := n.seen
	must(n.b, os.WriteFile(n.staged(p), []byte(exclusive.manifest(p.name)), 0o644))
	p.written = time.Now()
	must(n.b, os.Rename(n.staged(p), n.manifest(p)))
	n.until("the pod is Running", closely(2), func(phases map[string]v1.PodPhase) error {
		if phases[p.name] != v1.PodRunning {
			return fmt.Errorf("it is %q", phases[p.name])
		}
		p.running = time.Now()
		return nil
	})
	p.deleted = time.Now()
	must(n.b, os.Remove(n.manifest(p)))
	n.until("the pod is gone", closely(2), func(phases map[string]v1.PodPhase) error {
		if phase, ok := phases[p.name]; ok {
			return fmt.Errorf("it is %s", phase)
		}
		return nil
	})
	n.readJournal(batch{pods: []*pod{p}, since: since})
	return p
}
