package test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/test/harness"
)

// answering is a server in the test, at which containers' probes are directed.
type answering struct {
	code atomic.Int32
	port string
}

func newAnswering(t *testing.T, code int) *answering {
	t.Helper()
	a := &answering{}
	a.code.Store(int32(code))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(a.code.Load()))
	}))
	t.Cleanup(s.Close)
	var err error
	if _, a.port, err = net.SplitHostPort(s.Listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	return a
}

// get returns the handler of a probe of the server.
func (a *answering) get() string {
	return fmt.Sprintf("httpGet: {host: 127.0.0.1, port: %s}, periodSeconds: 1", a.port)
}

// awaitReady waits until the pod and its container are ready, or not ready.
func awaitReady(n *harness.Node, name string, want bool) {
	n.Eventually(fmt.Sprintf("%s is ready: %v", name, want), func() error {
		pods, err := n.Pods()
		if err != nil {
			return err
		}
		pod, ok := pods[name]
		if !ok || len(pod.Status.ContainerStatuses) == 0 {
			return fmt.Errorf("pod %s has no container yet", name)
		}
		is, c := conditionsOf(pod)[v1.PodReady], pod.Status.ContainerStatuses[0]
		if c.Ready != want || strings.HasPrefix(is, "True") != want {
			return fmt.Errorf("the container is ready: %v, the pod: %s", c.Ready, is)
		}
		return nil
	})
}

// awaitSaid waits until the log has the event at least once.
func awaitSaid(n *harness.Node, reason, message string) {
	n.Eventually(fmt.Sprintf("there is an event %s: %s", reason, message), func() error {
		raw, err := os.ReadFile(filepath.Join(n.Dir, "log"))
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(raw)) {
			if strings.Contains(line, `"Event"`) && strings.Contains(line, reason) &&
				strings.Contains(line, message) {
				return nil
			}
		}
		return errors.New("there is none")
	})
}

// A pod is ready if its probe says so, also after a restart of the agent, and the metrics of its
// probes are served.
func TestReadiness(t *testing.T) {
	t.Parallel()
	n, server := harness.New(t), newAnswering(t, http.StatusServiceUnavailable)
	n.Start()
	n.Pod("web", manifestOf("web", fmt.Sprintf("containers: [{name: main, image: sim.local/app, "+
		"readinessProbe: {%s, failureThreshold: 2}}]", server.get())))
	awaitSaid(n, "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503")
	awaitReady(n, "web-node", false)
	server.code.Store(http.StatusOK)
	awaitReady(n, "web-node", true)
	if got, want := n.Get("/metrics/probes"), `prober_probe_total{container="main",`+
		`namespace="default",pod="web-node",`; !strings.Contains(got, want) {
		t.Errorf("no %s in\n%s", want, got)
	}
	n.Kill()
	n.Start()
	awaitReady(n, "web-node", true)
	server.code.Store(http.StatusInternalServerError)
	awaitReady(n, "web-node", false)
	if c := container(t, n, "web-node", "main"); c.Subject.Attempt != 0 {
		t.Errorf("a container that was not ready was restarted: attempt %d", c.Subject.Attempt)
	}
}

// A container that fails its liveness probe is restarted, whatever its exit code. Before its
// startup probe has succeeded, its liveness is not probed.
func TestLiveness(t *testing.T) {
	t.Parallel()
	n, server := harness.New(t), newAnswering(t, http.StatusServiceUnavailable)
	quickRestarts(n)
	n.Start()
	n.Pod("web", manifestOf("web", fmt.Sprintf("restartPolicy: OnFailure\n  containers: [{name: main, "+
		"image: sim.local/app, startupProbe: {%s, failureThreshold: 3600}, "+
		"livenessProbe: {exec: {command: [sh, -c, \"echo it hangs; exit 1\"]}, periodSeconds: 1, "+
		"failureThreshold: 1, terminationGracePeriodSeconds: 5}}]", server.get()),
		"main: term=0"))
	awaitSaid(n, "Unhealthy", "Startup probe failed: ")
	pods, err := n.Pods()
	if err != nil {
		t.Fatal(err)
	}
	if c := statusOf(t, pods["web-node"], "main"); *c.Started || c.Ready || c.RestartCount != 0 {
		t.Errorf("before it has started: %+v", c)
	}
	server.code.Store(http.StatusOK)
	awaitContainer(n, "web-node", "main", func(c crisim.Container) error {
		if c.Subject.Attempt < 2 || !c.Running() {
			return fmt.Errorf("attempt %d", c.Subject.Attempt)
		}
		return nil
	})
	awaitSaid(n, "Unhealthy", "Liveness probe failed: it hangs")
	awaitSaid(n, "Killing", "Container main failed liveness probe, will be restarted")
}
