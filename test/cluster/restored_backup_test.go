package cluster_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// TestRestoredBackup: etcd is restored to a state from some pods ago. Pods of both times keep
// running untouched; pods created after the backup go, since nobody wants them any more; pods
// deleted after it are wanted again. Node, lease, statuses, mirror pods, ConfigMaps and watches
// work as if nothing had happened.
func TestRestoredBackup(t *testing.T) {
	c := rig.Own(t)
	agent := harness.New(t)
	n := c.Join(agent, "restored")
	agent.Pod("fixed", fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: fixed, namespace: %s},
 spec: {containers: [{name: main, image: "registry.test/work:1"}]}}`, c.Namespace))
	agent.Settings["nodeLeaseDurationSeconds"] = 4 // the agent renews it
	n.Start()
	for _, name := range []string{"kept", "doomed"} {
		c.Apply(bound(n.Name, name, ""))
		await(t, c, c.Namespace, name, runs)
	}
	before := map[string]string{}
	for _, name := range []string{"kept", "fixed-" + n.Name} {
		before[name] = lifeline(await(t, c, c.Namespace, name, runs))
	}
	backup := c.Data() + ".backup"
	betweenRuns(t, c, func() { copyTree(t, c.Data(), backup) })

	c.MustRun("delete", "pod", "doomed", "--timeout=1m")
	c.Apply(bound(n.Name, "late", ""))
	await(t, c, c.Namespace, "late", runs)
	for range 20 { // resource versions that etcd will use again
		c.MustRun("annotate", "--overwrite", "pod", "kept", "example.com/at="+fmt.Sprint(len(before)))
		c.MustRun("label", "--overwrite", "node", n.Name, "example.com/at=later")
		c.MustRun("label", "node", n.Name, "example.com/at-")
	}
	renewed := func() string {
		return c.MustRun("get", "lease", n.Name, "--namespace=kube-node-lease",
			"--output=jsonpath={.spec.renewTime}")
	}
	last := renewed()
	harness.Eventually(t, "the lease is renewed", func() error {
		if renewed() == last {
			return fmt.Errorf("the last time was %s", last)
		}
		return nil
	})
	betweenRuns(t, c, func() {
		if err := os.RemoveAll(c.Data()); err != nil {
			t.Fatal(err)
		}
		copyTree(t, backup, c.Data())
	})

	await(t, c, c.Namespace, "doomed", runs)
	c.MustRun("wait", "--for=condition=Ready", "node/"+n.Name, "--timeout=2m")
	c.Apply(bound(n.Name, "next", "")) // the agent learns of new pods
	await(t, c, c.Namespace, "next", runs)
	for name, was := range before {
		if now := lifeline(await(t, c, c.Namespace, name, runs)); now != was {
			t.Errorf("%s is %s, and was %s", name, now, was)
		}
	}
	harness.Eventually(t, "the runtime has what is wanted, and nothing else", func() error {
		list, err := c.Client.CoreV1().Pods(c.Namespace).List(t.Context(), metav1.ListOptions{
			FieldSelector: "spec.nodeName=" + n.Name})
		if err != nil {
			return err
		}
		wanted := map[string]bool{}
		for _, p := range list.Items {
			wanted[p.Name] = true
		}
		for _, s := range n.Runtime.State().Sandboxes {
			if !wanted[s.Pod] {
				return fmt.Errorf("pod %s is there and not wanted", s.Pod)
			}
			delete(wanted, s.Pod)
		}
		if len(wanted) > 0 {
			return fmt.Errorf("%v are not there", wanted)
		}
		return nil
	})
	c.MustRun("delete", "pod", "next", "--timeout=1m")
}

// lifeline returns what differs if a pod was started again.
func lifeline(p *v1.Pod) string {
	s := p.Status.ContainerStatuses[0]
	return fmt.Sprintf("%s, restarts %d, %s", s.ContainerID, s.RestartCount, p.Status.PodIP)
}

// betweenRuns stops the API server and etcd, and starts them again after f.
func betweenRuns(t *testing.T, c rig.Cluster, f func()) {
	t.Helper()
	var start []func() error
	for _, name := range []string{"kube-apiserver", "etcd"} {
		server, err := c.Server(name)
		if err != nil {
			t.Fatal(err)
		}
		server.Kill()
		start = append([]func() error{server.Start}, start...)
	}
	f()
	for _, again := range start {
		if err := again(); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Cluster.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, strings.TrimSpace(string(out)))
	}
}
