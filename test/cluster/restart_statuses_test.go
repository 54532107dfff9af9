package cluster_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/numalet/numalet/agent/podstatus/kept"
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
	told := map[types.UID]v1.PodStatus{}
	for _, name := range []string{"often-" + n.Name, "seldom-" + n.Name, "api-often", "api-seldom"} {
		pod := await(t, c, c.Namespace, name, runs)
		told[pod.UID] = pod.Status
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
			if pods, err := n.Pods(); err != nil || len(pods) < len(told) {
				return fmt.Errorf("%d pods, %w", len(pods), err)
			}
			return nil
		})
		time.Sleep(time.Duration(round%4) * 300 * time.Millisecond)
	}
	for _, at := range changes(t.Context(), pods.ResultChan(), told) {
		t.Error(at)
	}
}

// changes returns statuses that a watcher has not seen before. Another pod in the place of one is a
// change too.
func changes(ctx context.Context, events <-chan apiwatch.Event, told map[types.UID]v1.PodStatus) (
	out []string) {
	for {
		select {
		case e := <-events:
			pod, is := e.Object.(*v1.Pod)
			if !is {
				return append(out, fmt.Sprintf("the watch ended with %+v", e))
			}
			was, known := told[pod.UID]
			if diff := cmp.Diff(was, pod.Status); !known || diff != "" {
				out = append(out, fmt.Sprintf("%s %s (-was +is):\n%s", e.Type, pod.Name, diff))
			}
			told[pod.UID] = pod.Status
		case <-time.After(3 * time.Second): // earlier ones have arrived
			return out
		case <-ctx.Done():
			return out
		}
	}
}
