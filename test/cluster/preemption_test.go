package cluster_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/test/harness"
)

// TestPreemption: on a full node a pod is preempted for a critical one, which then runs. Both
// agents choose the same pod and report the same, and also if all pods together would not be
// enough.
func TestPreemption(t *testing.T) {
	reported := map[string]string{}
	for _, agent := range agents {
		t.Run(agent, func(t *testing.T) {
			s := newSide(t, agent)
			node, err := s.Client.CoreV1().Nodes().Get(t.Context(), s.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			unit := node.Status.Allocatable.Cpu().MilliValue() / 20
			start := func(name string, units int64, resources, more string) {
				t.Helper()
				s.Apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {%s
 nodeName: %s, automountServiceAccountToken: false, terminationGracePeriodSeconds: 1,
 containers: [{name: main, image: "%s", imagePullPolicy: IfNotPresent, resources: {%s}}]}}`,
					name, more, s.Name, rootImage, fmt.Sprintf(resources, units*unit)))
			}
			const requests = "requests: {cpu: %dm}"
			const critical = "priorityClassName: system-node-critical,"
			start("small", 3, requests, "")
			start("big", 9, requests, "")
			start("certain", 4, "limits: {cpu: %dm, memory: 16Mi}", "")
			start("least", 0, "requests: {memory: %d}", "")
			for _, name := range []string{"small", "big", "certain", "least"} {
				await(t, s.Cluster, s.Namespace, name, runs)
			}
			start("top", 6, requests, critical)
			await(t, s.Cluster, s.Namespace, "top", runs)
			gone := await(t, s.Cluster, s.Namespace, "small", func(p *v1.Pod) bool {
				return p.Status.Phase == v1.PodFailed
			})
			start("greedy", 30, requests, critical)
			refused := await(t, s.Cluster, s.Namespace, "greedy", func(p *v1.Pod) bool {
				return p.Status.Phase == v1.PodFailed
			})
			for _, name := range []string{"big", "certain", "least", "top"} {
				await(t, s.Cluster, s.Namespace, name, runs)
			}
			reported[agent] = fmt.Sprintln(gone.Status.Reason, gone.Status.Message, disruption(gone)) +
				fmt.Sprintln(refused.Status.Reason, refused.Status.Message) +
				eventsOf(t, s, "small", "Preempting")
			s.MustRun("delete", "pods", "--all", "--timeout=1m")
		})
	}
	if diff := cmp.Diff(reported["kubelet"], reported["numalet"]); diff != "" {
		t.Errorf("-kubelet +numalet:\n%s", diff)
	}
	if !strings.HasPrefix(reported["numalet"], "Preempting Preempted in order to admit critical pod "+
		"True TerminationByKubelet") {
		t.Errorf("numalet told\n%s", reported["numalet"])
	}
}

func disruption(p *v1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.DisruptionTarget {
			return fmt.Sprint(c.Status, " ", c.Reason, " ", c.Message)
		}
	}
	return "no disruption"
}

// eventsOf waits for events about a pod with a reason, and returns their messages.
func eventsOf(t *testing.T, s *side, name, reason string) string {
	t.Helper()
	var said []string
	harness.Eventually(t, "event "+reason, func() error {
		list, err := s.Client.CoreV1().Events(s.Namespace).List(context.Background(),
			metav1.ListOptions{FieldSelector: "involvedObject.name=" + name + ",reason=" + reason})
		if err == nil && len(list.Items) == 0 {
			err = fmt.Errorf("there is none about %s", name)
		}
		said = nil
		if err == nil {
			for _, e := range list.Items {
				said = append(said, e.Type+" "+e.Message)
			}
		}
		return err
	})
	slices.Sort(said)
	return strings.Join(slices.Compact(said), "\n")
}
