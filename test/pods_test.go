// Package test drives the built binary as users do, through files and sockets, on a simulated
// runtime.
package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/test/harness"
)

// manifest returns a Pod manifest whose spec is the given YAML, indented by two. Each script is
// "container: script" and says what the simulated runtime does with that container.
func manifestOf(name, spec string, scripts ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Pod\nmetadata:\n  name: %s\n", name)
	if len(scripts) > 0 {
		b.WriteString("  annotations:\n")
	}
	for _, s := range scripts {
		container, script, _ := strings.Cut(s, ": ")
		fmt.Fprintf(&b, "    %s%s: %q\n", crisim.AnnotationPrefix, container, script)
	}
	fmt.Fprintf(&b, "spec:\n  %s\n", strings.TrimSpace(spec))
	return b.String()
}

// plain returns a pod with one container, main, without requests.
func plain(name string, scripts ...string) string {
	return manifestOf(name, "containers: [{name: main, image: sim.local/app}]", scripts...)
}

// limited returns a Guaranteed pod with one container, main, and these limits, for example "cpu: 2,
// memory: 1Gi".
func limited(name, limits string, scripts ...string) string {
	return manifestOf(name, fmt.Sprintf(
		"containers: [{name: main, image: sim.local/app, resources: {limits: {%s}}}]", limits),
		scripts...)
}

// call selects journal entries; empty fields match all.
type call struct{ method, pod, container string }

func (c call) matches(j crisim.Call) bool {
	return (c.method == "" || c.method == j.Method) && (c.pod == "" || c.pod == j.Subject.Pod) &&
		(c.container == "" || c.container == j.Subject.Container)
}

// calls returns the matching entries of the runtime's journal.
func calls(n *harness.Node, want call) []crisim.Call {
	var out []crisim.Call
	for _, j := range n.Runtime.Journal(0) {
		if want.matches(j) {
			out = append(out, j)
		}
	}
	return out
}

// only returns the one call that matches. It must have ended without an error.
func only(t testing.TB, n *harness.Node, want call) crisim.Call {
	t.Helper()
	got := calls(n, want)
	if len(got) != 1 || got[0].End == 0 || got[0].Error != "" {
		t.Fatalf("want exactly one finished call %+v, got %+v", want, got)
	}
	return got[0]
}

// inOrder checks that each call ended before the next began.
func inOrder(t testing.TB, n *harness.Node, want ...call) {
	t.Helper()
	var before crisim.Call
	for i, w := range want {
		got := only(t, n, w)
		if i > 0 && before.End > got.Begin {
			t.Errorf("call %+v began before %+v was over", w, want[i-1])
		}
		before = got
	}
}

// container returns the runtime's newest container with that name.
func container(t testing.TB, n *harness.Node, pod, name string) crisim.Container {
	t.Helper()
	c, ok := n.Runtime.State().Container(pod, name)
	if !ok {
		t.Fatalf("the runtime has no container %s of pod %s", name, pod)
	}
	return c
}

// awaitContainer waits until check accepts the newest container with that name.
func awaitContainer(n *harness.Node, pod, name string, check func(crisim.Container) error) {
	n.Eventually(fmt.Sprintf("container %s of pod %s is as wanted", name, pod), func() error {
		c, ok := n.Runtime.State().Container(pod, name)
		if !ok {
			return fmt.Errorf("the runtime has no such container")
		}
		return check(c)
	})
}

// awaitCalls waits until at least count calls match, and returns them.
func awaitCalls(n *harness.Node, count int, want call) []crisim.Call {
	var got []crisim.Call
	n.Eventually(fmt.Sprintf("there are %d calls %+v", count, want), func() error {
		if got = calls(n, want); len(got) < count {
			return fmt.Errorf("there are %d", len(got))
		}
		return nil
	})
	return got
}

// awaitPod waits until check accepts the pod in /pods.
func awaitPod(n *harness.Node, name string, check func(v1.Pod) error) v1.Pod {
	var pod v1.Pod
	n.Eventually("pod "+name+" is as wanted", func() error {
		pods, err := n.Pods()
		if err != nil {
			return err
		}
		var ok bool
		if pod, ok = pods[name]; !ok {
			return fmt.Errorf("there is no such pod")
		}
		return check(pod)
	})
	return pod
}

// awaitReason waits until a container of the pod waits for that reason.
func awaitReason(n *harness.Node, name, reason string) v1.ContainerStateWaiting {
	var waiting v1.ContainerStateWaiting
	awaitPod(n, name, func(pod v1.Pod) error {
		for _, s := range append(pod.Status.InitContainerStatuses,
			pod.Status.ContainerStatuses...) {
			if s.State.Waiting != nil && s.State.Waiting.Reason == reason {
				waiting = *s.State.Waiting
				return nil
			}
		}
		return fmt.Errorf("its containers are %+v", pod.Status.ContainerStatuses)
	})
	return waiting
}

// awaitRejected waits until the pod was rejected and returns its reason and message.
func awaitRejected(n *harness.Node, name string) (reason, message string) {
	pod := n.AwaitPhase(name, v1.PodFailed)
	return pod.Status.Reason, pod.Status.Message
}

// statusOf returns the status of a container of any kind.
func statusOf(t testing.TB, pod v1.Pod, name string) v1.ContainerStatus {
	t.Helper()
	for _, s := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("pod %s has no status of container %s: %+v", pod.Name, name, pod.Status)
	return v1.ContainerStatus{}
}

// conditionsOf maps the pod's conditions to "Status" or "Status Reason".
func conditionsOf(pod v1.Pod) map[v1.PodConditionType]string {
	out := map[v1.PodConditionType]string{}
	for _, c := range pod.Status.Conditions {
		out[c.Type] = strings.TrimSpace(string(c.Status) + " " + c.Reason)
	}
	return out
}

// logged counts the lines of the agent's log that contain all the texts.
func logged(t testing.TB, n *harness.Node, texts ...string) int {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(n.Dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for line := range strings.Lines(string(raw)) {
		all := true
		for _, text := range texts {
			all = all && strings.Contains(line, text)
		}
		if all {
			count++
		}
	}
	return count
}

// awaitLogged waits until a line of the log contains all the texts.
func awaitLogged(t testing.TB, n *harness.Node, texts ...string) {
	t.Helper()
	n.Eventually(fmt.Sprintf("the log says %q", texts), func() error {
		if logged(t, n, texts...) == 0 {
			return fmt.Errorf("it does not")
		}
		return nil
	})
}

// absent checks that nothing exists at the path.
func absent(t testing.TB, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("%s is still there (%v)", path, err)
	}
}
