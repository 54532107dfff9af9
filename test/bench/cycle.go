package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cri"
)

// kind is a kind of pod.
type kind string

const (
	// shared pods have a container in the shared pool, which asks for half a CPU.
	shared kind = "shared"
	// exclusive pods have a container with a CPU and a device of its own.
	exclusive kind = "exclusive"
)

const resource = "example.com/gpu"

func (k kind) manifest(name string) string {
	limits := "{cpu: 500m, memory: 64Mi}"
	if k == exclusive {
		limits = `{cpu: "1", memory: 64Mi, ` + resource + `: "1"}`
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

// cycle is what came of pods that were started and removed together.
type cycle struct {
	pods []*pod
	// watched: running and gone are known.
	watched bool
	// cpu is what the agent used from the first manifest to the last pod's start.
	cpu time.Duration
	// since is the runtime's journal before it; calls are those that the runtime got for it.
	since uint64
	calls int
}

// poll says how to watch the agent's /pods while it works.
type poll struct{ every time.Duration }

// cycle starts pods together, waits until they run, and removes them together.
func (n *node) cycle(ctx context.Context, k kind, count int, watch *poll) (*cycle, error) {
	before, err := n.calls(ctx)
	if err != nil {
		return nil, err
	}
	c, err := n.start(ctx, k, count, watch)
	if err != nil {
		return nil, err
	}
	if err := n.remove(ctx, c, watch); err != nil {
		return nil, err
	}
	c.calls, err = n.calls(ctx)
	c.calls -= before
	return c, err
}

// calls is how many calls the runtime has got.
func (n *node) calls(ctx context.Context) (sum int, err error) {
	state, err := n.runtime.State(ctx)
	for _, calls := range state.Calls {
		sum += calls
	}
	return sum, err
}

func (n *node) start(ctx context.Context, k kind, count int, watch *poll) (*cycle, error) {
	c := &cycle{watched: watch != nil, since: n.seen}
	for range count {
		n.serial++
		p := &pod{name: fmt.Sprintf("%s-%04d", k, n.serial)}
		if err := os.WriteFile(n.staged(p), []byte(k.manifest(p.name)), 0o644); err != nil {
			return nil, err
		}
		c.pods = append(c.pods, p)
	}
	before, err := n.agent.cpu()
	if err != nil {
		return nil, err
	}
	n.events.reset()
	for _, p := range c.pods {
		p.written = time.Now()
		if err := os.Rename(n.staged(p), n.manifest(p)); err != nil {
			return nil, err
		}
	}
	if watch != nil {
		if err := n.watch(ctx, c, *watch); err != nil {
			return nil, err
		}
	}
	// A pod is a sandbox and a container.
	if err := n.events.await(ctx, cri.EventStarted, 2*count); err != nil {
		return nil, err
	}
	after, err := n.agent.cpu()
	c.cpu = after - before
	if err == nil && watch == nil {
		err = await(ctx, "all pods are Running", func() error { return n.seeRunning(c) })
	}
	return c, err
}

func (n *node) staged(p *pod) string   { return filepath.Join(n.dir, "staging", p.name) }
func (n *node) manifest(p *pod) string { return filepath.Join(n.manifests, p.name+".yaml") }

// watch notes when /pods first has the pods Running. It leaves the agent alone until the first
// container has started.
func (n *node) watch(ctx context.Context, c *cycle, how poll) error {
	if err := n.events.await(ctx, cri.EventStarted, 2); err != nil {
		return err
	}
	return how.until(ctx, "all pods are Running", func() error { return n.seeRunning(c) })
}

func (n *node) seeRunning(c *cycle) error {
	phases, err := n.phases()
	if err != nil {
		return err
	}
	now := time.Now()
	for _, p := range c.pods {
		phase := phases[p.name]
		switch {
		case !p.running.IsZero():
		case phase == v1.PodRunning:
			p.running = now
		case phase == v1.PodFailed:
			return fmt.Errorf("pod %s is Failed", p.name)
		default:
			err = fmt.Errorf("pod %s is %q", p.name, phase)
		}
	}
	return err
}

// remove removes the manifests, waits until nothing is left of the pods, and completes their times
// from the runtime's journal.
func (n *node) remove(ctx context.Context, c *cycle, watch *poll) error {
	n.events.reset()
	for _, p := range c.pods {
		p.deleted = time.Now()
		if err := os.Remove(n.manifest(p)); err != nil {
			return err
		}
	}
	if err := n.events.await(ctx, cri.EventDeleted, 2*len(c.pods)); err != nil {
		return err
	}
	how := poll{every: 10 * time.Millisecond}
	if watch != nil {
		how = *watch
	}
	err := how.until(ctx, "all pods are gone", func() error { return n.seeGone(c) })
	if err != nil {
		return err
	}
	return n.readJournal(ctx, c)
}

func (n *node) seeGone(c *cycle) error {
	phases, err := n.phases()
	if err != nil {
		return err
	}
	now := time.Now()
	for _, p := range c.pods {
		if phase, ok := phases[p.name]; ok {
			err = fmt.Errorf("pod %s is %s", p.name, phase)
		} else if p.gone.IsZero() {
			p.gone = now
		}
	}
	return err
}

func (n *node) readJournal(ctx context.Context, c *cycle) error {
	calls, err := n.runtime.Journal(ctx, c.since)
	if err != nil {
		return err
	}
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
			return fmt.Errorf("the runtime's journal lacks the start or the end of pod %s", p.name)
		}
	}
	return nil
}

// tally counts the runtime's events since the last reset.
type tally struct {
	stop func()

	mu     sync.Mutex // guards counts
	counts map[cri.EventType]int
	wake   chan struct{} // capacity 1
}

// follow counts the events of a runtime until stop is called.
func follow(client *cri.Client) *tally {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t := &tally{counts: map[cri.EventType]int{}, wake: make(chan struct{}, 1)}
	t.stop = func() {
		cancel()
		<-done
	}
	go func() {
		defer close(done)
		_ = client.Events(ctx, t.count) // ends with the runtime or with stop; await notices
	}()
	return t
}

func (t *tally) count(e cri.Event) {
	t.add(e.Type)
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *tally) add(kind cri.EventType) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[kind]++
}

func (t *tally) of(kind cri.EventType) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[kind]
}

func (t *tally) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.counts)
}

// await waits for n events of a kind since the last reset.
func (t *tally) await(ctx context.Context, kind cri.EventType, n int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for t.of(kind) < n {
		select {
		case <-t.wake:
		case <-ctx.Done():
			return fmt.Errorf("waited for %d %s events of the runtime, %d came: %w",
				n, kind, t.of(kind), ctx.Err())
		}
	}
	return nil
}
