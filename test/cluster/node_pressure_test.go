package cluster_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/test/harness"
)

// TestMemoryPressure: on a node that is always short of memory both agents refuse and evict the same
// pods, in the same order, with the same words: all but critical ones, the least important first, one
// after the other when the grace period of the threshold is over. With a negative
// evictionMaxPodGracePeriod a pod has one second to exit, although the kubelet's help says its own grace.
func TestMemoryPressure(t *testing.T) {
	reported := map[string]string{}
	for _, agent := range agents {
		t.Run(agent, func(t *testing.T) { reported[agent] = pressed(t, agent) })
	}
	if diff := cmp.Diff(reported["kubelet"], reported["numalet"]); diff != "" {
		t.Errorf("-kubelet +numalet:\n%s", diff)
	}
	if !strings.Contains(reported["numalet"], "Evicted The node was low on resource: memory. Threshold "+
		"quantity: 900Ti, available: ") {
		t.Errorf("numalet told\n%s", reported["numalet"])
	}
	if !strings.Contains(reported["kubelet"], unhurried+" exits with 137\n") {
		t.Errorf("the kubelet told\n%s", reported["kubelet"])
	}
}

// unhurried is a pod that exits with 0 five seconds after SIGTERM, within its own grace period of 30 s.
const unhurried = "least"

// pressed returns what is told of the node and its pods.
func pressed(t *testing.T, agent string) string {
	s := newSideWith(t, agent, map[string]any{
		"evictionSoft":              map[string]string{"memory.available": "900Ti"},
		"evictionSoftGracePeriod":   map[string]string{"memory.available": "35s"},
		"evictionMaxPodGracePeriod": -1,
	})
	condition := ""
	harness.Eventually(t, "the node is under pressure", func() error {
		node, err := s.Client.CoreV1().Nodes().Get(context.Background(), s.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == v1.NodeMemoryPressure {
				condition = fmt.Sprintln(c.Type, c.Status, c.Reason, c.Message)
			}
		}
		if !strings.Contains(condition, "True") {
			return fmt.Errorf("it says %s", condition)
		}
		return nil
	})
	s.Apply(fmt.Sprintf("{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: %s-some}, value: 7}",
		s.Namespace))
	start := func(name, resources, more string) {
		t.Helper()
		script := ""
		if name == unhurried {
			script = "term=0 term-after=5s"
		}
		s.Apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, annotations: {%smain: "%s"}},
 spec: {%s nodeName: %s, automountServiceAccountToken: false,
 containers: [{name: main, image: "%s", imagePullPolicy: IfNotPresent, resources: {%s}}]}}`,
			name, crisim.AnnotationPrefix, script, more, s.Name, rootImage, resources))
	}
	const requests = "requests: {cpu: 10m}"
	start("some", requests, "priorityClassName: "+s.Namespace+"-some,")
	start(unhurried, requests, "")
	start("critical", requests, "priorityClassName: system-node-critical,")
	start("refused", "", "")
	start("tolerates", "", "priorityClassName: "+s.Namespace+"-some, "+
		"tolerations: [{key: node.kubernetes.io/memory-pressure, operator: Exists}],")
	out := condition
	for _, name := range []string{"refused", unhurried, "some", "tolerates"} {
		p := await(t, s.Cluster, s.Namespace, name, func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed })
		out += name + ": " + fmt.Sprintln(p.Status.Reason, p.Status.Message, disruption(p))
	}
	exited := await(t, s.Cluster, s.Namespace, unhurried, func(p *v1.Pod) bool {
		return p.Status.ContainerStatuses[0].State.Terminated != nil
	})
	out += fmt.Sprintln(unhurried, "exits with", exited.Status.ContainerStatuses[0].State.Terminated.ExitCode)
	await(t, s.Cluster, s.Namespace, "critical", runs)
	order := evictedInOrder(t, s)
	out += "evicted first: " + order[0] + fmt.Sprintln(", of", len(order)) + s.evictions(t, 3)
	s.MustRun("delete", "pods", "--all", "--timeout=1m")
	s.MustRun("delete", "priorityclass", s.Namespace+"-some")
	// What there is changes, and only one of the two agents is told what a pod of this runtime uses.
	out = regexp.MustCompile(`available: \w+\. `).ReplaceAllString(out, "available: some. ")
	return regexp.MustCompile(`Container main was using [^.]*\. `).ReplaceAllString(out, "")
}

// evictions waits until the agent counts so many evictions, and returns its counters.
func (s *side) evictions(t *testing.T, want int) (lines string) {
	t.Helper()
	harness.Eventually(t, "the metric of evictions", func() error {
		text, err := s.Run("get", "--raw", "/api/v1/nodes/"+s.Name+"/proxy/metrics")
		if err != nil {
			return err
		}
		lines = ""
		total := 0.0
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "kubelet_evictions{") {
				count, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:len(line)-1], 64)
				if err != nil {
					return err
				}
				total += count
				lines += line
			}
		}
		if int(total) != want {
			return fmt.Errorf("it counts %v: %s", total, lines)
		}
		return nil
	})
	return lines
}

// evictedInOrder lists the pods of which an event says that they were evicted, in the order of these
// events.
func evictedInOrder(t *testing.T, s *side) (names []string) {
	t.Helper()
	harness.Eventually(t, "events of three evictions", func() error {
		list, err := s.Client.CoreV1().Events(s.Namespace).List(context.Background(),
			metav1.ListOptions{FieldSelector: "reason=Evicted"})
		if err != nil {
			return err
		}
		version := func(e v1.Event) int {
			n, _ := strconv.Atoi(e.ResourceVersion)
			return n
		}
		slices.SortFunc(list.Items, func(a, b v1.Event) int { return version(a) - version(b) })
		names = nil
		for _, e := range list.Items {
			if e.Annotations["starved_resource"] == "memory" { // a refusal has no annotation
				names = append(names, e.InvolvedObject.Name)
			}
		}
		if len(names) != 3 {
			return fmt.Errorf("there are %v", names)
		}
		return nil
	})
	return names
}
