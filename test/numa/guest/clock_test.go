package guest_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
)

// testClock: the machine's clock is set back by an hour under an agent that runs, and then right
// again. Probes go on, what crashes is started again, and not an hour later, and nothing that runs is
// touched.
func testClock(g guest) {
	var probes atomic.Int64
	server := &http.Server{ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { probes.Add(1) })}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		g.t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }() // it ends with Close
	defer server.Close()
	before, calls := g.facts("near", "pair"), g.calls()
	g.createLike("probed", nil, map[string]any{"periodSeconds": 1, "httpGet": map[string]any{
		"host": "127.0.0.1", "port": listener.Addr().(*net.TCPAddr).Port}})
	g.createLike("crashing", []string{"--exit=1"}, nil)
	goesOn := func() {
		g.t.Helper()
		asked, restarts := probes.Load(), -1
		g.Eventually("probes and restarts go on", func() error {
			now, err := g.restarts("crashing")
			if err != nil {
				return err
			}
			if restarts < 0 {
				restarts = now
			}
			if more := probes.Load() - asked; more < 3 || now < restarts+2 {
				return fmt.Errorf("%d probes, %d restarts", more, now-restarts)
			}
			return nil
		})
	}
	g.running("probed")
	goesOn()
	for _, by := range []time.Duration{-time.Hour, time.Hour} {
		setClock(g.t, by)
		row(g.t, "clock: set by %v, it is %s", by, time.Now().Round(0).UTC().Format(time.DateTime))
		goesOn()
		g.unchanged(before, calls)
	}
	pod := g.running("probed")
	if s := pod.Status.ContainerStatuses[0]; !s.Ready || s.RestartCount > 0 {
		g.t.Errorf("probed: %+v", s)
	}
	g.remove("probed", "crashing")
}

// createLike writes the manifest of a pod with these arguments and this readiness probe.
func (g guest) createLike(name string, args []string, readiness map[string]any) {
	g.t.Helper()
	container := map[string]any{"name": "main", "image": containerd.WorkImage, "args": args}
	if readiness != nil {
		container["readinessProbe"] = readiness
	}
	manifest, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"hostNetwork": true, "containers": []any{container}},
	})
	if err != nil {
		g.t.Fatal(err)
	}
	g.Pod(name, string(manifest))
}

// restarts returns how often a pod's container was restarted.
func (g guest) restarts(name string) (int, error) {
	pods, err := g.Pods()
	if err != nil {
		return 0, err
	}
	statuses := pods[name+"-node"].Status.ContainerStatuses
	if len(statuses) == 0 {
		return 0, nil
	}
	return int(statuses[0].RestartCount), nil
}

// setClock sets the machine's clock.
func setClock(t *testing.T, by time.Duration) {
	t.Helper()
	to := unix.NsecToTimeval(time.Now().Add(by).UnixNano())
	if err := unix.Settimeofday(&to); err != nil {
		t.Fatalf("set the clock by %v: %v", by, err)
	}
}
