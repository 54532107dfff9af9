package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/harness"
)

// restarts is how often the agent restarts while pods are watched.
const restarts = 50

// watcher polls the pods. news has each change of a pod's status.
type watcher struct {
	mu   sync.Mutex
	last map[string]v1.PodStatus
	news []string
}

// watch asks for the pods again and again until ctx ends.
func (w *watcher) watch(ctx context.Context, n *harness.Node) {
	for ctx.Err() == nil {
		if pods, err := n.Pods(); err == nil { // otherwise no agent answers
			w.see(pods)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (w *watcher) see(pods map[string]v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, pod := range pods {
		if was, known := w.last[name]; known {
			if diff := cmp.Diff(was, pod.Status); diff != "" {
				w.news = append(w.news, name+":\n"+diff)
			}
		}
		w.last[name] = pod.Status
	}
}

// settled waits until that many pods were seen and nothing has changed for a second.
func (w *watcher) converged(n *harness.Node, pods int) {
	n.Eventually("nothing changes any more", func() error {
		w.mu.Lock()
		w.news = nil
		w.mu.Unlock()
		time.Sleep(time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.last) < pods || len(w.news) > 0 {
			return fmt.Errorf("%d pods are seen, and %d changes", len(w.last), len(w.news))
		}
		return nil
	})
}

// A restart of the agent changes no status of a static pod: probe results stay true until a probe
// says otherwise.
func TestRestartsKeepStatuses(t *testing.T) {
	t.Parallel()
	n, server := harness.New(t), newAnswering(t, http.StatusOK)
	slow := fmt.Sprintf("httpGet: {host: 127.0.0.1, port: %s}, periodSeconds: 30", server.port)
	probed := func(probe string) string {
		return fmt.Sprintf("initContainers: [{name: side, image: sim.local/app, restartPolicy: Always, "+
			"startupProbe: {%s}, readinessProbe: {%s}}]\n  containers: [{name: main, image: sim.local/app, "+
			"startupProbe: {%s}, livenessProbe: {%s}, readinessProbe: {%s}}]",
			probe, probe, probe, probe, probe)
	}
	manifests := map[string]string{
		"often":   manifestOf("often", probed(server.get())),
		"seldom":  manifestOf("seldom", probed(slow)),
		"unready": manifestOf("unready", "containers: [{name: main, image: sim.local/app, readinessProbe: {exec: {command: [\"false\"]}}}]"),
		"done": manifestOf("done", "restartPolicy: Never\n  containers: [{name: main, image: sim.local/app}]",
			"main: exit=0 after=1ms"),
		"init": manifestOf("init", "initContainers: [{name: init, image: sim.local/app}]\n  "+
			"containers: [{name: main, image: sim.local/app}]", "init: exit=0 after=1ms"),
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(manifestOf("served", probed(slow)))) // the agent may be gone
	}))
	t.Cleanup(web.Close)
	n.Settings["staticPodURL"], n.Settings["httpCheckFrequency"] = web.URL, "1s"
	for name, text := range manifests {
		n.Pod(name, text)
	}
	n.Start()
	w := &watcher{last: map[string]v1.PodStatus{}}
	ctx, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { w.watch(ctx, n.As(t)) })
	defer watching.Wait()
	defer stop()
	n.AwaitPhase("done-node", v1.PodSucceeded)
	for _, name := range []string{"often-node", "seldom-node", "served-node"} {
		awaitReady(n, name, true)
	}
	w.converged(n, len(manifests)+1)
	for round := range restarts {
		if round%2 == 0 {
			n.Kill()
		} else if err := n.Stop(); err != nil {
			t.Error(err)
		}
		if round%10 == 9 { // longer than the time between two probes
			time.Sleep(1500 * time.Millisecond)
		}
		n.Start()
		n.Eventually("all pods are listed and looked at", func() error {
			if pods, err := n.Pods(); err != nil || len(pods) <= len(manifests) {
				return errors.Join(err, fmt.Errorf("%d pods are listed", len(pods)))
			}
			return nil
		})
		time.Sleep(time.Duration(round%5) * 100 * time.Millisecond)
	}
	stop()
	watching.Wait()
	if len(w.news) > 0 {
		raw, _ := json.MarshalIndent(w.news, "", " ")
		t.Errorf("in %d restarts %d other statuses were told, at first\n%s\nof\n%s", restarts,
			len(w.news), w.news[0], raw)
	}
}
