package cluster_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/numalet/numalet/agent/pods/podstatus/kept"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// restarted is how often the agent restarts under watched pods.
const restarted = 50

// TestRestartsKeepStatuses: a restart of the agent changes no status of a pod, not even for a
// moment. This holds for static pods too, with or without the file that keeps their statuses, as
// long as they have a mirror pod.
func TestRestartsKeepStatuses(t *testing.T) {
	c := rig.Start(t)
	n := c.Join(harness.New(t), "retold")
	port, _ := newProbeServers(t, 1)
	probe := func(period int) string {
		return fmt.Sprintf(`{httpGet: {host: 127.0.0.2, port: %d, path: /ok/%d}, periodSeconds: %d}`,
			port, period, period)
	}
	probed := func(period int) string {
		return fmt.Sprintf(`, startupProbe: %s, readinessProbe: %s, livenessProbe: %s`, probe(period),
			probe(period), probe(period))
	}
	for name, period := range map[string]int{"often": 1, "seldom": 30} {
		n.Pod(name, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s},
 spec: {containers: [{name: main, image: "registry.test/work:1"%s}]}}`, name, c.Namespace,
			probed(period)))
	}
	n.Start()
	c.AwaitReady(n.Name)
	c.Apply(bound(n.Name, "api-often", probed(1)) + "\n---\n" + bound(n.Name, "api-seldom", probed(30)))
	reported := map[types.UID]v1.PodStatus{}
	for _, name := range []string{"often-" + n.Name, "seldom-" + n.Name, "api-often", "api-seldom"} {
		pod := await(t, c, c.Namespace, name, runs)
		reported[pod.UID] = pod.Status
	}
	pods, err := c.Client.CoreV1().Pods(c.Namespace).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer pods.Stop()
	for round := range restarted {
		if round%2 == 0 {
			n.Kill()
		} else if err := n.Stop(); err != nil {
			t.Error(err)
		}
		switch round % 5 {
		case 0: // by an agent that kept no statuses, or another one
			if err := os.RemoveAll(filepath.Join(n.Root, kept.Dir)); err != nil {
				t.Error(err)
			}
		case 1: // longer than the time between two probes
			time.Sleep(1500 * time.Millisecond)
		}
		n.Start()
		harness.Eventually(t, "the agent tells of all pods", func() error {
			if pods, err := n.Pods(); err != nil || len(pods) < len(reported) {
				return fmt.Errorf("%d pods, %w", len(pods), err)
			}
			return nil
		})
		time.Sleep(time.Duration(round%4) * 300 * time.Millisecond)
	}
	for _, at := range changes(t.Context(), pods.ResultChan(), reported) {
		t.Error(at)
	}
}

// changes returns statuses that a watcher has not seen before. Another pod in the place of one is a
// change too.
func changes(ctx context.Context, events <-chan apiwatch.Event, reported map[types.UID]v1.PodStatus) (
	out []string) {
	for {
		select {
		case e := <-events:
			pod, is := e.Object.(*v1.Pod)
			if !is {
				return append(out, fmt.Sprintf("the watch ended with %+v", e))
			}
			was, known := reported[pod.UID]
			if diff := cmp.Diff(was, pod.Status); !known || diff != "" {
				out = append(out, fmt.Sprintf("%s %s (-was +is):\n%s", e.Type, pod.Name, diff))
			}
			reported[pod.UID] = pod.Status
		case <-time.After(3 * time.Second): // earlier ones have arrived
			return out
		case <-ctx.Done():
			return out
		}
	}
}

// TestRestartsAskProbesAnew: with the gate ChangeContainerStatusOnKubeletRestart a restart of either agent
// takes from containers what their probes had found until these have answered again. It takes nothing
// from those without such probes.
func TestRestartsAskProbesAnew(t *testing.T) {
	port, _ := newProbeServers(t, 1)
	probe := fmt.Sprintf("{httpGet: {host: 127.0.0.2, port: %d, path: /late/anew}, periodSeconds: 4, timeoutSeconds: 4}",
		port)
	pods := map[string]string{
		"unasked": "",
		"ready":   ", readinessProbe: " + probe,
		"started": ", startupProbe: " + probe,
		"both":    ", startupProbe: " + probe + ", readinessProbe: " + probe,
		"lives":   ", livenessProbe: " + probe,
	}
	want := map[string]unproven{"unasked": {}, "ready": {ready: true}, "started": {true, true},
		"both": {true, true}, "lives": {}}
	for _, agent := range agents {
		t.Run(agent, func(t *testing.T) {
			s := newSideWith(t, agent, map[string]any{"featureGates": map[string]bool{
				"ChangeContainerStatusOnKubeletRestart": true, "DefaultPodSysctls": true,
			}})
			for name, probes := range pods {
				s.Apply(bound(s.Name, name, probes))
			}
			got := map[string]unproven{}
			for name := range pods {
				await(t, s.Cluster, s.Namespace, name, isReady)
				got[name] = unproven{}
			}
			watch, err := s.Client.CoreV1().Pods(s.Namespace).Watch(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer watch.Stop()
			if err := s.Node.Stop(); err != nil {
				t.Error(err)
			}
			s.Node.Start()
			harness.Eventually(t, "the watcher has seen all that is taken", func() error {
				if err := see(watch.ResultChan(), got); err != nil {
					t.Fatal(err)
				}
				if !maps.Equal(got, want) {
					return fmt.Errorf("%+v, want %+v", got, want)
				}
				return nil
			})
			for name := range pods {
				await(t, s.Cluster, s.Namespace, name, isReady)
			}
			if err := see(watch.ResultChan(), got); err != nil || !maps.Equal(got, want) {
				t.Errorf("%v: what was taken is %+v, want %+v", err, got, want)
			}
		})
	}
}

// unproven has what a pod's status had and lost.
type unproven struct{ started, ready bool }

// see notes what is taken from pods in the events that have come.
func see(events <-chan apiwatch.Event, got map[string]unproven) error {
	for {
		select {
		case e := <-events:
			pod, is := e.Object.(*v1.Pod)
			if !is {
				return fmt.Errorf("the watch ended with %+v", e)
			}
			c, was := pod.Status.ContainerStatuses[0], got[pod.Name]
			got[pod.Name] = unproven{was.started || !*c.Started, was.ready || !c.Ready && !runs(pod)}
		default:
			return nil
		}
	}
}
