package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
	"github.com/numalet/numalet/test/cluster/rig"
	containerdrig "github.com/numalet/numalet/test/containerd/rig"
	"github.com/numalet/numalet/test/harness"
)

// command returns a command that exits with a code, as JSON.
func command(code int) string {
	text, _ := json.Marshal([]string{containerd.Program, "container", "work",
		fmt.Sprintf("--exit=%d", code)})
	return string(text)
}

// lives are pods, with the statuses they reach, and those events about them that users rely on.
var lives = []struct {
	name, spec string
	is         func(*v1.Pod) bool
	events     []string
}{
	{
		name: "dead",
		spec: `livenessProbe: {exec: {command: ` + command(1) + `}, periodSeconds: 1, timeoutSeconds: 20,
			failureThreshold: 1, terminationGracePeriodSeconds: 1}`,
		is: func(p *v1.Pod) bool { return restarts(p) > 0 },
		events: []string{"Killing: Container main failed liveness probe, will be restarted",
			"Unhealthy: Liveness probe failed:"},
	},
	{
		name: "unborn",
		spec: `startupProbe: {grpc: {port: 81}, periodSeconds: 1, failureThreshold: 2}`,
		is:   func(p *v1.Pod) bool { return restarts(p) > 0 },
		events: []string{"Killing: Container main failed startup probe, will be restarted",
			`Unhealthy: Startup probe failed: timeout: failed to connect service "IP:81" within 1s: ` +
				`context deadline exceeded`},
	},
	{
		name: "closed",
		spec: `readinessProbe: {tcpSocket: {port: 81}, periodSeconds: 1, failureThreshold: 1}`,
		is: func(p *v1.Pod) bool {
			return len(p.Status.ContainerStatuses) == 1 && !runs(p) &&
				*p.Status.ContainerStatuses[0].Started && !p.Status.ContainerStatuses[0].Ready
		},
		events: []string{
			"Unhealthy: Readiness probe failed: dial tcp IP:81: connect: connection refused"},
	},
	{
		name: "silent",
		spec: `readinessProbe: {httpGet: {port: 81}, periodSeconds: 1, failureThreshold: 1}`,
		is:   func(p *v1.Pod) bool { return len(p.Status.ContainerStatuses) == 1 && !runs(p) },
		events: []string{`Unhealthy: Readiness probe failed: Get "http://IP:81/": ` +
			`dial tcp IP:81: connect: connection refused`},
	},
	{
		name: "fine",
		spec: `readinessProbe: {exec: {command: ` + command(0) + `}, periodSeconds: 1, timeoutSeconds: 20},
			lifecycle: {postStart: {exec: {command: ` + command(0) + `}}, preStop: {sleep: {seconds: 0}}}`,
		is: runs,
	},
	{
		name: "cursed",
		spec: `lifecycle: {postStart: {exec: {command: ` + command(3) + `}}}`,
		is:   func(p *v1.Pod) bool { return restarts(p) > 0 && !runs(p) },
		events: []string{"FailedPostStartHook: PostStartHook failed",
			"Killing: FailedPostStartHook"},
	},
	{
		name: "late",
		spec: `stdin: true}], activeDeadlineSeconds: 2, tolerations: [{operator: Exists`,
		is: func(p *v1.Pod) bool {
			return p.Status.Phase == v1.PodFailed && p.Status.Reason == "DeadlineExceeded" &&
				p.Status.Message == "Pod was active on the node longer than the specified deadline"
		},
		events: []string{
			"DeadlineExceeded: Pod was active on the node longer than the specified deadline"},
	},
}

func restarts(p *v1.Pod) int32 {
	if len(p.Status.ContainerStatuses) == 0 {
		return 0
	}
	return p.Status.ContainerStatuses[0].RestartCount
}

// TestContainerLifecycles: probes, hooks and deadlines of real containers have the same results
// under both agents, in the same words.
func TestContainerLifecycles(t *testing.T) {
	for _, name := range agents {
		t.Run(name, func(t *testing.T) {
			c := rig.Start(t)
			agent, _, _ := containerdrig.Node(t)
			if name == "kubelet" {
				rig.StockKubelet(t, agent)
			}
			n := c.Join(agent, name)
			n.Start()
			c.AwaitReady(n.Name)
			for _, life := range lives {
				c.Apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {
 automountServiceAccountToken: false, terminationGracePeriodSeconds: 2, nodeName: %s,
 dnsPolicy: Default,
 containers: [{name: main, image: "%s", %s}]}}`,
					life.name, n.Name, containerd.WorkImage, life.spec))
			}
			for _, life := range lives {
				await(t, c, c.Namespace, life.name, life.is)
				awaitEvents(t, c, life.name, life.events)
			}
			testDebug(t, c)
			c.MustRun("delete", "pod", "--all", "--timeout=1m")
		})
	}
}

// testDebug: a container of kubectl debug runs, sees the processes of its target, and reports how
// it ended.
func testDebug(t *testing.T, c rig.Cluster) {
	c.MustRun("debug", "fine", "--image="+containerd.WorkImage, "--container=debug", "--target=main",
		"--image-pull-policy=IfNotPresent", "--", containerd.Program, "container", "work", "--print",
		"--exit=5")
	p := await(t, c, c.Namespace, "fine", func(p *v1.Pod) bool {
		return len(p.Status.EphemeralContainerStatuses) == 1 &&
			p.Status.EphemeralContainerStatuses[0].State.Terminated != nil && runs(p)
	})
	s := p.Status.EphemeralContainerStatuses[0]
	if s.State.Terminated.ExitCode != 5 || s.Ready || s.RestartCount != 0 {
		t.Errorf("the container is %+v", s)
	}
	if r := reportIn(t, c.MustRun("logs", "fine", "--container=debug")); r.PID == 1 {
		t.Errorf("it sees itself as the first process: %+v", r)
	}
}

// address matches what differs between two runs of a pod.
var address = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+:`)

// awaitEvents waits until the events about a pod, without those of its start, are the given ones.
func awaitEvents(t *testing.T, c rig.Cluster, name string, want []string) {
	t.Helper()
	var got []string
	harness.Eventually(t, "events tell of "+name, func() error {
		list, err := c.Client.CoreV1().Events(c.Namespace).List(context.Background(),
			metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
		if err != nil {
			return err
		}
		got = nil
		for _, e := range list.Items {
			line := strings.TrimSpace(e.Reason + ": " + address.ReplaceAllString(e.Message, "IP:"))
			if !slices.Contains(want, line) && slices.Contains(
				[]string{"Pulled", "Created", "Started", "BackOff", "Failed"}, e.Reason) ||
				line == "Killing: Stopping container main" {
				continue
			}
			if !slices.Contains(got, line) {
				got = append(got, line)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(strings.Join(want, "\n"), strings.Join(got, "\n")); diff != "" {
			return fmt.Errorf("-want +got:\n%s", diff)
		}
		return nil
	})
}
