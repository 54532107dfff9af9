package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// ours returns a node that runs numalet on a simulated runtime and is registered.
func ours(t *testing.T) (rig.Cluster, rig.Node) {
	t.Helper()
	c := rig.Start(t)
	n := c.Join(harness.New(t), "ours")
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	_, err := c.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	n.Start()
	return c, n
}

// bound returns a pod that is bound to a node without the scheduler.
func bound(node, name, container string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {nodeName: %s,
 automountServiceAccountToken: false, terminationGracePeriodSeconds: 1,
 tolerations: [{operator: Exists}],
 containers: [{name: main, image: "registry.test/work:1"%s}]}}`, name, node, container)
}

// get returns a pod from the API server.
func get(t *testing.T, c rig.Cluster, namespace, name string) (*v1.Pod, error) {
	t.Helper()
	return c.Client.CoreV1().Pods(namespace).Get(context.Background(), name, metav1.GetOptions{})
}

// await waits until a pod of the API server satisfies is.
func await(t *testing.T, c rig.Cluster, namespace, name string, is func(*v1.Pod) bool) (p *v1.Pod) {
	t.Helper()
	harness.Eventually(t, "pod "+name+" is as it should be", func() (err error) {
		if p, err = get(t, c, namespace, name); err == nil && !is(p) {
			err = fmt.Errorf("it is %+v", p.Status)
		}
		return err
	})
	return p
}

func runs(p *v1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue && p.Status.Phase == v1.PodRunning
		}
	}
	return false
}

// TestPodOfTheAPIServer: it runs, its status says so, it is deleted once it has ended, and events
// report what happened. A pod that waits says for what, and can be deleted without having run.
func TestPodOfTheAPIServer(t *testing.T) {
	c, n := ours(t)
	c.Apply(bound(n.Name, "works", ""))
	_, stop := n.Plugin("example.com/device", "--devices=1")
	harness.Eventually(t, "the node has the device", func() error {
		node, err := c.Client.CoreV1().Nodes().Get(t.Context(), n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if many := node.Status.Allocatable["example.com/device"]; many.Value() != 1 {
			return fmt.Errorf("it has %v", many.Value())
		}
		return nil
	})
	stop()
	c.Apply(bound(n.Name, "waits", `, resources: {limits: {example.com/device: 1}}`))
	p := await(t, c, c.Namespace, "works", runs)
	if s := p.Status; s.StartTime == nil || s.PodIP == "" || s.HostIP == "" ||
		len(s.ContainerStatuses) != 1 || s.ContainerStatuses[0].ContainerID == "" ||
		s.ObservedGeneration != p.Generation {
		t.Errorf("its status is %+v", s)
	}
	await(t, c, c.Namespace, "waits", func(p *v1.Pod) bool {
		return p.Status.Phase == v1.PodPending && p.Status.Reason == "WaitingForDevicePlugin"
	})
	harness.Eventually(t, "kubectl describe says what happened", func() error {
		for name, want := range map[string]string{"works": "Started", "waits": "WaitingForDevicePlugin"} {
			text, err := c.Run("describe", "pod", name)
			if err != nil {
				return err
			}
			if _, events, _ := strings.Cut(text, "Events:"); !strings.Contains(events, want) {
				return fmt.Errorf("of %s it says %s", name, text)
			}
		}
		return nil
	})
	c.MustRun("delete", "pod", "works", "waits", "--timeout=1m")
	n.AwaitGone("works")
	n.AwaitGone("waits")
}

// TestForcedDeletion: a pod that is deleted by force is gone from the API server at once, and
// leaves the node whatever its grace period.
func TestForcedDeletion(t *testing.T) {
	c, n := ours(t)
	c.Apply(strings.Replace(bound(n.Name, "works", ""), "Seconds: 1", "Seconds: 3600", 1))
	await(t, c, c.Namespace, "works", runs)
	c.MustRun("delete", "pod", "works", "--force", "--grace-period=0", "--wait=false")
	n.AwaitGone("works")
}

const staticManifest = `apiVersion: v1
kind: Pod
metadata: {name: static, labels: {v: "1"}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "registry.test/work:1"}]
`

// TestMirrorPods: a mirror pod shows a static pod with its status and events. Deleting the mirror
// pod deletes nothing else; another manifest gets another mirror pod, and without a manifest there
// is none.
func TestMirrorPods(t *testing.T) {
	c, n := ours(t)
	n.Pod("static", staticManifest)
	name := "static-" + n.Name
	shown := func(p *v1.Pod) bool { return runs(p) && p.DeletionTimestamp == nil }
	first := await(t, c, "default", name, shown)
	harness.Eventually(t, "kubectl describe has the static pod's events", func() error {
		text, err := c.Run("describe", "pod", "--namespace=default", name)
		if err == nil && !strings.Contains(text, "Started") {
			err = errors.New(text)
		}
		return err
	})
	for _, how := range [][]string{{"--grace-period=30"}, {"--force", "--grace-period=0"}} {
		was := await(t, c, "default", name, shown)
		c.MustRun(append([]string{"delete", "pod", "--namespace=default", "--wait=false", name},
			how...)...)
		next := await(t, c, "default", name, func(p *v1.Pod) bool {
			return shown(p) && p.UID != was.UID
		})
		if a, b := containerOf(first), containerOf(next); a != b {
			t.Errorf("container %s became %s", a, b)
		}
	}
	n.Pod("static", strings.Replace(staticManifest, `"1"`, `"2"`, 1))
	await(t, c, "default", name, func(p *v1.Pod) bool {
		return shown(p) && p.Labels["v"] == "2" && containerOf(p) != containerOf(first)
	})
	n.RemovePod("static")
	harness.Eventually(t, "the mirror pod is gone", func() error {
		p, err := get(t, c, "default", name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("there is %v, %w", p, err)
	})
}

// TestStaticPodOfATakenName: a static pod runs although the API server has another pod of its name,
// which runs too. The API server's clients see that one, and the static one after its end.
func TestStaticPodOfATakenName(t *testing.T) {
	c, n := ours(t)
	name := "static-" + n.Name
	c.Apply(bound(n.Name, name, ""))
	first := await(t, c, c.Namespace, name, runs)
	n.Pod("static", strings.Replace(staticManifest, "name: static",
		"namespace: "+c.Namespace+", name: static", 1))
	running := func(want int) map[string]string {
		out := map[string]string{}
		n.Eventually(fmt.Sprintf("%d pods of that name run", want), func() error {
			clear(out)
			for _, c := range n.Runtime.State().Containers {
				if c.Subject.Pod == name && c.Running() {
					out[c.Subject.UID] = c.Subject.ID
				}
			}
			if len(out) != want {
				return fmt.Errorf("there are %v", out)
			}
			return nil
		})
		return out
	}
	both := running(2)
	if !strings.Contains(containerOf(first), both[string(first.UID)]) {
		t.Errorf("container %s is none of %v", containerOf(first), both)
	}
	shown := await(t, c, c.Namespace, name, runs)
	if shown.UID != first.UID || containerOf(shown) != containerOf(first) {
		t.Errorf("the API server shows pod %s with container %s", shown.UID, containerOf(shown))
	}
	c.MustRun("delete", "pod", name, "--timeout=1m")
	mirror := await(t, c, c.Namespace, name, func(p *v1.Pod) bool {
		return runs(p) && p.UID != first.UID
	})
	for uid, id := range running(1) {
		if both[uid] != id || !strings.Contains(containerOf(mirror), id) {
			t.Errorf("container %s of %s runs, shown is %s; before there were %v", id, uid,
				containerOf(mirror), both)
		}
	}
}

func containerOf(p *v1.Pod) string { return p.Status.ContainerStatuses[0].ContainerID }

// TestNothingIsWrittenAfterARestart: after a kill of the agent the statuses of running pods are
// what was written before, so nothing is written again; and a mirror pod is deleted if its static
// pod was removed meanwhile.
func TestNothingIsWrittenAfterARestart(t *testing.T) {
	c, n := ours(t)
	n.Pod("static", staticManifest)
	n.Pod("goes", strings.Replace(staticManifest, "name: static", "name: goes", 1))
	c.Apply(bound(n.Name, "works", ""))
	pods := map[types.NamespacedName]string{
		{Namespace: c.Namespace, Name: "works"}:          "",
		{Namespace: "default", Name: "static-" + n.Name}: "",
	}
	await(t, c, "default", "goes-"+n.Name, runs)
	for name := range pods {
		pods[name] = await(t, c, name.Namespace, name.Name, runs).ResourceVersion
	}
	n.Kill()
	n.RemovePod("goes")
	n.Start()
	c.Apply(bound(n.Name, "later", ""))
	await(t, c, c.Namespace, "later", runs) // by now it has looked at the others
	harness.Eventually(t, "the mirror pod is gone", func() error {
		if _, err := get(t, c, "default", "goes-"+n.Name); !apierrors.IsNotFound(err) {
			return fmt.Errorf("there it is, or %w", err)
		}
		return nil
	})
	for name, version := range pods {
		p, err := get(t, c, name.Namespace, name.Name)
		if err != nil || p.ResourceVersion != version {
			t.Errorf("pod %s was version %s, is %s: %v", name, version, p.ResourceVersion, err)
		}
	}
	c.MustRun("delete", "pod", "works", "later", "--timeout=1m")
}

// TestEndedPods: a pod that has ended in the API server never runs again and keeps its status,
// whatever the runtime still has; a pod that was deleted while no agent ran is deleted by the next
// one.
func TestEndedPods(t *testing.T) {
	c, n := ours(t)
	once := func(name, script string) string {
		return strings.NewReplacer(
			"metadata: {", fmt.Sprintf("metadata: {annotations: {%smain: %q}, ",
				crisim.AnnotationPrefix, script),
			"nodeName", "restartPolicy: Never, nodeName").Replace(bound(n.Name, name, ""))
	}
	c.Apply(once("succeeds", "exit=0 after=1ms"))
	c.Apply(once("fails", "exit=3 after=1ms"))
	c.Apply(bound(n.Name, "works", ""))
	done := func(phase v1.PodPhase) func(*v1.Pod) bool {
		return func(p *v1.Pod) bool { return p.Status.Phase == phase }
	}
	ended := map[string]*v1.Pod{
		"succeeds": await(t, c, c.Namespace, "succeeds", done(v1.PodSucceeded)),
		"fails":    await(t, c, c.Namespace, "fails", done(v1.PodFailed)),
	}
	if s := ended["fails"].Status.ContainerStatuses[0].State.Terminated; s == nil || s.ExitCode != 3 {
		t.Errorf("the container that failed is %+v", s)
	}
	await(t, c, c.Namespace, "works", runs)
	n.Kill()
	c.MustRun("delete", "pod", "works", "--wait=false")
	n.Start()
	c.MustRun("wait", "--for=delete", "pod/works", "--timeout=1m")
	for name, was := range ended {
		p, err := get(t, c, c.Namespace, name)
		if err != nil || p.ResourceVersion != was.ResourceVersion {
			t.Errorf("pod %s became %+v: %v", name, p.Status, err)
		}
	}
	c.MustRun("delete", "pod", "succeeds", "fails", "--timeout=1m")
}
