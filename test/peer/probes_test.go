package peer

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// probed measures the CPU that it takes to probe pods: as many as in a burst, each with a startup
// probe and each second a liveness probe by HTTP and a readiness probe by TCP. What they reach is
// the test's own server: the answers cost both agents the same.
func (n *node) probed() {
	n.t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
	}))
	defer server.Close()
	names := make([]string, n.settings.burst)
	var all sync.WaitGroup
	for i := range names {
		names[i] = fmt.Sprintf("probed%d", i)
		pod := n.pod(names[i])
		c := &pod.Spec.Containers[0]
		c.StartupProbe = probe(n.port(server.URL), "/")
		c.LivenessProbe = probe(n.port(server.URL), "/")
		c.ReadinessProbe = probe(n.port(server.URL), "")
		all.Go(func() { n.create(pod) })
	}
	all.Wait()
	for _, name := range names {
		n.when("running", n.ready, name)
	}
	time.Sleep(5 * time.Second) // for what comes behind
	lasts := n.settings.idle / 2
	cpu := n.CPU()
	time.Sleep(lasts)
	n.column.add("probes_cpu_percent", percent(n.CPU()-cpu, lasts))
	for _, name := range names {
		all.Go(func() { n.remove(name) })
	}
	all.Wait()
	for _, name := range names {
		n.when("gone", n.gone, name)
	}
}

// answered measures what it takes from the answer to a probe to what it brings about: a condition that
// a watcher sees, and the end of a container, by the runtime.
func (n *node) answered() {
	n.t.Helper()
	p := &prober{at: map[string]time.Time{}}
	server := httptest.NewServer(p)
	defer server.Close()
	var names []string
	for i := range n.settings.singles {
		name := fmt.Sprintf("answered%d", i)
		names = append(names, name)
		pod := n.pod(name)
		pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
		c := &pod.Spec.Containers[0]
		c.ReadinessProbe = probe(n.port(server.URL), "/ready/"+name)
		c.LivenessProbe = probe(n.port(server.URL), "/live/"+name)
		c.LivenessProbe.FailureThreshold = 1
		n.create(pod)
	}
	time.Sleep(5 * time.Second) // all run, and none is ready
	for _, of := range []struct {
		figure, path, what string
		seen               map[string]time.Time
	}{
		{"probe_to_ready_p50_ms", "/ready/", "ready", n.ready},
		{"probe_to_stop_p50_ms", "/live/", "stopped", n.exit},
	} {
		p.nextRound()
		var took []float64
		for _, name := range names {
			seen := n.when(of.what, of.seen, name)
			took = append(took, ms(seen.Sub(p.when(of.path+name))))
		}
		n.column.add(of.figure, median(took))
	}
	for _, name := range names {
		n.remove(name)
	}
	for _, name := range names {
		n.when("gone", n.gone, name)
	}
}

// prober answers the probes of pods that are alive and not ready at first, then ready, then dead.
type prober struct {
	mu     sync.Mutex
	rounds int
	at     map[string]time.Time // when it gave the answer that changes something, by path
}

// ServeHTTP implements http.Handler.
func (p *prober) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ready, dies := strings.HasPrefix(r.URL.Path, "/ready/"), p.rounds > 1
	if _, is := p.at[r.URL.Path]; !is && (ready && p.rounds > 0 || !ready && dies) {
		p.at[r.URL.Path] = time.Now()
	}
	if ready && p.rounds == 0 || !ready && dies {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (p *prober) nextRound() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rounds++
}

func (p *prober) when(path string) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at[path]
}

// port returns the server's port.
func (n *node) port(server string) intstr.IntOrString {
	n.t.Helper()
	at, err := url.Parse(server)
	n.must(err)
	return intstr.Parse(at.Port())
}

// probe asks each second, for a path by HTTP or, without one, by TCP.
func probe(port intstr.IntOrString, path string) *v1.Probe {
	p := &v1.Probe{PeriodSeconds: 1, TimeoutSeconds: 5, FailureThreshold: 10}
	const host = "127.0.0.1"
	if path != "" {
		p.HTTPGet = &v1.HTTPGetAction{Host: host, Port: port, Path: path}
	} else {
		p.TCPSocket = &v1.TCPSocketAction{Host: host, Port: port}
	}
	return p
}
