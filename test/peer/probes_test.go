package peer

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
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
		c.StartupProbe = probe(n.port(server.URL), true)
		c.LivenessProbe = probe(n.port(server.URL), true)
		c.ReadinessProbe = probe(n.port(server.URL), false)
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

// port is where the server listens.
func (n *node) port(server string) intstr.IntOrString {
	n.t.Helper()
	at, err := url.Parse(server)
	n.must(err)
	return intstr.Parse(at.Port())
}

// probe asks each second, by HTTP or else by TCP.
func probe(port intstr.IntOrString, byHTTP bool) *v1.Probe {
	p := &v1.Probe{PeriodSeconds: 1, TimeoutSeconds: 5, FailureThreshold: 10}
	const host = "127.0.0.1"
	if byHTTP {
		p.HTTPGet = &v1.HTTPGetAction{Host: host, Port: port, Path: "/"}
	} else {
		p.TCPSocket = &v1.TCPSocketAction{Host: host, Port: port}
	}
	return p
}
