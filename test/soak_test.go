package test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	pluginsim "github.com/numalet/numalet/cmd/numalet-lab/sim"
	"github.com/numalet/numalet/test/harness"
)

// evil is a resource of a plugin that misbehaves in every way.
const evil = "evil.example.com/thing"

// TestSoak runs an agent with manifests, an HTTP source, clients, crash loops and a plugin that all
// misbehave at the same time. Beside them it starts good pods one after the other: plain ones, some
// with a CPU and some with devices. Each must run, and the agent's memory must stay small.
//
// NUMALET_SOAK makes it longer (see make soak). Only then the test also fails if pods take long to
// start, because that needs a quiet machine and many pods.
func TestSoak(t *testing.T) {
	lasts, err := time.ParseDuration(os.Getenv("NUMALET_SOAK"))
	long := err == nil
	if !long {
		t.Parallel()
		lasts = 10 * time.Second
	}
	n := harness.New(t)
	feed := evilFeed(t)
	n.Settings["staticPodURL"] = feed
	n.Settings["httpCheckFrequency"], n.Settings["fileCheckFrequency"] = "1s", "1s"
	n.Settings["maxPods"] = 300
	n.Settings["crashLoopBackOff"] = map[string]string{"maxContainerRestartPeriod": "1s"}
	n.Args = append(n.Args, "-v=2") // -v=4 is for finding faults and logs all that plugins send
	n.Start()
	_, _ = n.Plugin(gpu, "--devices=8", "--nodes=0-3")
	ctl, _ := n.Plugin(evil, "--devices=8", "--nodes=0-3")
	linkManifests(t, n)
	crashLoops(t, n, 50)
	var ran started
	n.Runtime.Watch(ran.see)

	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var troubles errgroup.Group
	troubles.Go(func() error { return evilManifests(ctx, t, n) })
	troubles.Go(func() error { return evilClients(ctx, n) })
	troubles.Go(func() error { return evilPlugin(ctx, t, n, ctl) })
	before := cpuTimeNow(t)
	took := goodPods(ctx, t, n, &ran)
	stolen := cpuTimeNow(t).stolenSince(before)
	cancel()
	if err := troubles.Wait(); err != nil {
		t.Error(err)
	}

	slices.Sort(took)
	p99, peak := took[len(took)*99/100], harness.MemoryMiB(t, n.PID(), "VmHWM")
	t.Logf("%d good pods: half ran after %v, 99 %% after %v, all after %v; at most %.0f MiB of memory; "+
		"the host took %.1f %% of the CPUs' time",
		len(took), took[len(took)/2], p99, took[len(took)-1], peak, 100*stolen)
	if peak > 300 {
		t.Errorf("the agent took %.0f MiB of memory, want at most 300", peak)
	}
	limit := time.Second
	if stolen > soakStolen {
		limit *= 5
		t.Logf("lenient, as the host took more than %.0f %%: 99 %% may take %v", 100*soakStolen, limit)
	}
	if long && p99 > limit {
		t.Errorf("99 %% of the good pods ran after %v, want at most %v", p99, limit)
	}
}

// crashLoops makes pods that end at once and whose images are pulled each time, and waits until all
// have ended once: registryPullQPS slows the first pulls down.
func crashLoops(t *testing.T, n *harness.Node, pods int) {
	t.Helper()
	for i := range pods {
		name := fmt.Sprintf("crash%d", i)
		put(t, n, name+".yaml", plain(name, "main: exit=1 after=1ms"))
	}
	n.Eventually("all crash", func() error {
		there, err := n.Pods()
		looping := 0
		for name, p := range there {
			if strings.HasPrefix(name, "crash") && len(p.Status.ContainerStatuses) > 0 &&
				p.Status.ContainerStatuses[0].RestartCount > 0 {
				looping++
			}
		}
		if err == nil && looping < pods {
			err = fmt.Errorf("%d of %d do", looping, pods)
		}
		return err
	})
}

// started reports when the container of one pod runs.
type started struct {
	waits atomic.Pointer[startOf]
}

type startOf struct {
	pod string
	at  chan time.Time // capacity 1
}

// await must be called before the pod is written.
func (s *started) await(pod string) <-chan time.Time {
	w := &startOf{pod: pod, at: make(chan time.Time, 1)}
	s.waits.Store(w)
	return w.at
}

func (s *started) see(c crisim.Container) {
	if w := s.waits.Load(); w != nil && c.Running() && c.Subject.Pod == w.pod {
		select {
		case w.at <- time.Now():
		default:
		}
	}
}

// goodPods starts pods until ctx ends, at least three, and keeps the last five. It returns how long
// each took to start.
func goodPods(ctx context.Context, t *testing.T, n *harness.Node, ran *started) (
	took []time.Duration) {
	t.Helper()
	kinds := []func(string) string{
		func(name string) string { return plain(name) },
		func(name string) string { return limited(name, "cpu: 1, memory: 64Mi") },
		func(name string) string { return limited(name, "cpu: 1, memory: 64Mi, "+gpu+": 1") },
	}
	for i := 0; ctx.Err() == nil || i < 3; i++ {
		name := fmt.Sprintf("good%d", i)
		runs, began := ran.await(name+"-node"), time.Now()
		put(t, n, name+".yaml", kinds[i%len(kinds)](name))
		select {
		case at := <-runs:
			took = append(took, at.Sub(began))
		case <-time.After(harness.Patience):
			t.Fatalf("%s does not run after %v", name, harness.Patience)
		}
		if i >= 5 {
			n.RemovePod(fmt.Sprintf("good%d", i-5))
		}
		time.Sleep(50 * time.Millisecond)
	}
	return took
}

// evilFeed serves an answer that is too large, answers that are no pods, and empty answers.
func evilFeed(t *testing.T) (url string) {
	t.Helper()
	bad := []string{
		`{"apiVersion": "v1", "kind": "PodList", "items": [` +
			strings.Repeat(`{"metadata": {"name": "x"}}, `, 300_000) + `{}]}`,
		manifestOf("deep", "containers: "+strings.Repeat("[", 10_000)),
		"", "\x00\x01",
	}
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, bad[calls.Add(1)%int64(len(bad))]) // the agent may have stopped reading
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// evilManifests adds and removes hostile manifests until ctx ends.
func evilManifests(ctx context.Context, t *testing.T, n *harness.Node) error {
	bad := hostileManifests()
	for ctx.Err() == nil {
		for name, b := range bad {
			put(t, n, name, b[0])
			pause(ctx, 100*time.Millisecond)
			if err := os.Remove(filepath.Join(n.Manifests, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// evilClients connect and say nothing, or ask for all pods and do not read the answer.
func evilClients(ctx context.Context, n *harness.Node) error {
	addr := strings.TrimPrefix(n.URL(""), "http://")
	var held []net.Conn
	defer func() {
		for _, c := range held {
			_ = c.Close()
		}
	}()
	for i := 0; ctx.Err() == nil; i++ {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		if held = append(held, c); len(held) > 150 {
			_ = held[0].Close()
			held = held[1:]
		}
		if i%2 == 0 {
			_, _ = io.WriteString(c, "GET /pods HTTP/1.1\r\nHost: x\r\n\r\n")
		}
		pause(ctx, 10*time.Millisecond)
	}
	return nil
}

// evilPlugin makes the plugin misbehave in one way after the other, with pods that want its
// devices.
func evilPlugin(ctx context.Context, t *testing.T, n *harness.Node, ctl *pluginsim.Client) error {
	faults := []pluginsim.Fault{
		{RPC: pluginsim.Allocate, Hang: true},
		{RPC: pluginsim.Allocate, Code: "UNKNOWN", Message: strings.Repeat("no!\n", 300_000)},
		{RPC: pluginsim.Allocate, Lie: pluginsim.Empty},
		{RPC: pluginsim.Preferred, Hang: true},
		{RPC: pluginsim.Preferred, Lie: pluginsim.Foreign},
		{RPC: pluginsim.PreStart, Hang: true},
		{RPC: pluginsim.List, Lie: pluginsim.Empty},
		{RPC: pluginsim.List, Lie: pluginsim.Duplicate},
		{RPC: pluginsim.Options, Hang: true},
		{RPC: pluginsim.Register, Code: "INTERNAL"},
	}
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("evil%d", i)
		err := ctl.Fault(ctx, faults[i%len(faults)])
		put(t, n, name+".yaml", limited(name, "cpu: 1, memory: 64Mi, "+evil+": 1"))
		if err == nil {
			err = ctl.Restart(ctx) // it registers again, and earlier calls get no answer
		}
		pause(ctx, 300*time.Millisecond)
		n.RemovePod(name)
		if err == nil {
			err = ctl.ClearFaults(ctx)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
