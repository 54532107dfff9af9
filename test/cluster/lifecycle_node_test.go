package cluster_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/test/cluster/histories"
	"github.com/numalet/numalet/test/harness"
)

// scenarioNode is a node of one agent whose pods are recorded.
type scenarioNode struct {
	*side
	*histories.Recorder
	port    string // of the probe server
	plugins sync.WaitGroup

	mu       sync.Mutex
	now      map[string]*v1.Pod            // the existing pods
	stops    map[string]context.CancelFunc // stops the plugins and drivers, by pod
	drivers  map[string]*claimDrivers      // by pod
	lastCall map[string]string             // to a driver, by pod and driver
}

// newScenarioNode starts a node and records its pods; numalet also has these arguments.
func newScenarioNode(t *testing.T, agent, port string, asked *probeServer,
	ours ...string) *scenarioNode {
	t.Helper()
	return newScenarioNodeWith(t, agent, port, asked, nil, ours...)
}

// newScenarioNodeWith is newScenarioNode with further settings.
func newScenarioNodeWith(t *testing.T, agent, port string, asked *probeServer, settings map[string]any,
	ours ...string) *scenarioNode {
	t.Helper()
	all := map[string]any{
		"crashLoopBackOff": map[string]any{"maxContainerRestartPeriod": "4s"},
		"syncFrequency":    "1s", // the kubelet syncs that often
		"registryPullQPS":  0,
		// Other scenarios use the images that one has pulled.
		"imagePullCredentialsVerificationPolicy": "NeverVerify",
		"kubeAPIQPS":                             500, "kubeAPIBurst": 1000,
		"nodeStatusUpdateFrequency": "1s",
	}
	maps.Copy(all, settings)
	s := &scenarioNode{port: port, now: map[string]*v1.Pod{},
		stops: map[string]context.CancelFunc{}, side: newSideWith(t, agent, all, ours...)}
	t.Cleanup(s.plugins.Wait)
	s.answers = asked
	s.Recorder = histories.New(s.plain)
	follow(t, s.Cluster, "pods", s.Namespace, func(pod *v1.Pod, gone bool) {
		s.Recorder.Pod(pod, gone)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.now[pod.Name] = pod; gone {
			delete(s.now, pod.Name)
		}
	})
	follow(t, s.Cluster, "events", s.Namespace, func(event *v1.Event, gone bool) {
		if !gone && event.ReportingController != v1.DefaultSchedulerName {
			s.Event(event)
		}
	})
	return s
}

// takes reports whether the API server accepts the pod.
func (s *scenarioNode) takes(t *testing.T, pod *v1.Pod) bool {
	t.Helper()
	pod, err := s.renamed(pod, pod.Name)
	if err == nil {
		pod.Spec.EphemeralContainers = nil
		_, err = s.Client.CoreV1().Pods(s.Namespace).Create(t.Context(), pod,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	if err != nil && !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
		t.Fatal(err)
	}
	return err == nil
}

// begin creates the pod in the API server, or writes a static pod's manifest.
func (s *scenarioNode) begin(ctx context.Context, one scenario, try int) error {
	pod, err := one.pod(try, s)
	if err != nil {
		return err
	}
	if one.static {
		pod.Name, pod.Namespace = strings.TrimSuffix(pod.Name, "-"+s.Name), s.Namespace
		return s.manifest(pod)
	}
	if pod.Spec.NodeName = s.Name; len(pod.Spec.ResourceClaims)+len(s.driversOf(pod.Name).running) > 0 &&
		!one.bound {
		pod.Spec.NodeName = ""
		s.scheduled(pod)
	}
	added := pod.Spec.EphemeralContainers
	pod.Spec.EphemeralContainers = nil
	_, err = s.Client.CoreV1().Pods(s.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err == nil && len(added) > 0 {
		err = s.add(ctx, pod.Name, added)
	}
	return err
}

// manifest writes a static pod's manifest.
func (s *scenarioNode) manifest(pod *v1.Pod) error {
	pod.APIVersion, pod.Kind = "v1", "Pod"
	raw, err := yaml.Marshal(pod)
	if err == nil {
		s.Node.Pod(pod.Name, string(raw))
	}
	return err
}

// play carries out the steps of a scenario.
func (s *scenarioNode) play(ctx context.Context, steps []step, pod string) error {
	for i, one := range steps {
		if err := s.await(ctx, pod, one); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
		if err := s.act(ctx, one.do, pod); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

// changesAfterEnd bounds how long a pod that is over may change.
const changesAfterEnd = 20 * time.Second

// await waits until the pod is as the step wants it, and has been for the step's time. Once the pod is
// over it may change for so long.
func (s *scenarioNode) await(ctx context.Context, pod string, one step) error {
	until, since := time.Now().Add(harness.Patience), time.Time{}
	over := false
	for {
		now := s.seen(pod)
		if now != nil && isOver(now) && !over {
			over, until = true, time.Now().Add(changesAfterEnd+one.stay)
		}
		switch {
		case one.until != nil && (now == nil || !one.until(now)):
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		}
		if !since.IsZero() && time.Since(since) >= one.stay {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("waited in vain; the pod is %+v", now)
		}
		if !sleep(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (s *scenarioNode) act(ctx context.Context, do act, pod string) error {
	if do == nil {
		return nil
	}
	return do(ctx, s, pod)
}

// seen returns the newest pod that the watcher has seen; nil: it does not exist.
func (s *scenarioNode) seen(pod string) *v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now[pod]
}

// end removes the pod, and waits until it is gone and its sandbox stopped.
func (s *scenarioNode) end(ctx context.Context, one scenario, pod string) error {
	if one.static {
		err := os.Remove(filepath.Join(s.Manifests, strings.TrimSuffix(pod, "-"+s.Name)+".yaml"))
		if err != nil && !os.IsNotExist(err) {
			return err
		}
	} else if now := s.seen(pod); now != nil && now.DeletionTimestamp == nil {
		if err := remove(-1)(ctx, s, pod); err != nil {
			return err
		}
	}
	for began := time.Now(); ; {
		if s.seen(pod) == nil && !s.ready(pod) {
			s.stopPlugin(pod)
			return nil
		}
		if time.Since(began) > harness.Patience {
			return fmt.Errorf("waited %v in vain until it is gone", harness.Patience)
		}
		if !sleep(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
}

func (s *scenarioNode) stopPlugin(pod string) {
	s.mu.Lock()
	stop := s.stops[pod]
	delete(s.stops, pod)
	s.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// ready reports whether a sandbox of the pod is ready.
func (s *scenarioNode) ready(pod string) bool {
	return slices.ContainsFunc(s.Runtime.State().Sandboxes, func(sb crisim.Sandbox) bool {
		return sb.Pod == pod && sb.Ready
	})
}
