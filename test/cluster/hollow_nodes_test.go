package cluster_test

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// hollowWork is placed by the scheduler: pods with exclusive GPUs and CPUs, and a job that ends.
const hollowWork = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: gpus}
spec:
  replicas: 10
  selector: {matchLabels: {app: gpus}}
  template:
    metadata: {labels: {app: gpus}}
    spec:
      nodeSelector: {hollow: "yes"}
      tolerations: [{key: hollow, operator: Exists}]
      automountServiceAccountToken: false
      containers:
      - name: main
        image: sim.local/app
        readinessProbe: {tcpSocket: {port: 80}}
        resources: {limits: {cpu: 2, memory: 64Mi, example.com/gpu: 1}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: ends}
spec:
  completions: 3
  parallelism: 3
  template:
    spec:
      nodeSelector: {hollow: "yes"}
      tolerations: [{key: hollow, operator: Exists}]
      restartPolicy: Never
      containers: [{name: main, image: sim.local/app, command: [sleep, "1"]}]
`

// TestHollowNodes: nodes without hardware run what the scheduler gives them, report what is free by
// NUMA node, keep the pods' assignments over a kill, and are removed when asked to.
func TestHollowNodes(t *testing.T) {
	c := rig.Start(t)
	applyFile(t, c, "testdata/noderesourcetopology.yaml")
	root := filepath.Join(t.TempDir(), "root")
	h := startHollow(t, c, root)
	ready := func() {
		t.Helper()
		eventually(t, c, strings.TrimSpace(strings.Repeat("True ", 20)), "get", "nodes", "-l",
			"hollow=yes", "-o", `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`)
	}
	ready()
	c.Apply(hollowWork)
	eventually(t, c, "10", "get", "deployment", "gpus", "-o", "jsonpath={.status.readyReplicas}")
	eventually(t, c, "3", "get", "job", "ends", "-o", "jsonpath={.status.succeeded}")
	harness.Eventually(t, "every node has its NodeResourceTopology", func() error {
		names, err := c.Run("get", "node-res-topo", "-o", "name")
		if n := strings.Count(names, "hollow-"); err != nil || n != 20 {
			return fmt.Errorf("there are %d: %v", n, err)
		}
		return nil
	})
	pods := gpuPods(t, c)
	busy := pods[0].Spec.NodeName
	free := "jsonpath={.zones[*].resources[?(@.name==\"example.com/gpu\")].available}"
	before := c.MustRun("get", "node-res-topo", busy, "-o", free)

	h.kill()
	held := holdings(t, root, pods)
	h = startHollow(t, c, root)
	harness.Eventually(t, "the pods run again", func() error {
		for _, p := range gpuPods(t, c) {
			if s := p.Status.ContainerStatuses; len(s) != 1 || s[0].RestartCount < 1 || !s[0].Ready {
				return fmt.Errorf("%s: %+v", p.Name, s)
			}
		}
		return nil
	})
	for _, p := range gpuPods(t, c) {
		if !has(pods, p) {
			t.Errorf("pod %s on %s was not there before the kill", p.Name, p.Spec.NodeName)
		}
	}
	eventually(t, c, before, "get", "node-res-topo", busy, "-o", free)

	if diff := cmp.Diff(held, holdings(t, root, pods)); diff != "" {
		t.Errorf("pods hold something else after the kill (- before, + after):\n%s", diff)
	}

	c.Apply(bound("hollow-playground-0", "too-much",
		`, resources: {limits: {cpu: 20, memory: 64Mi}}`)) // of a NUMA node with 16
	eventually(t, c, "TopologyAffinityError", "get", "pod", "too-much", "-o",
		"jsonpath={.status.reason}")
	c.MustRun("delete", "deployment", "gpus")
	c.MustRun("wait", "--for=delete", "pod", "-l", "app=gpus", "--timeout=2m")
	h.end()
	eventually(t, c, "", "get", "nodes", "-l", "hollow=yes", "-o", "name")
}

// holdings returns the pods' CPUs and devices in the nodes' state files, by name.
func holdings(t *testing.T, root string, pods []v1.Pod) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, p := range pods {
		store, err := store.Open(filepath.Join(root, p.Spec.NodeName))
		if err != nil {
			t.Fatal(err)
		}
		held, found := store.State().Pods[p.UID]
		if !found || held.CPUs().Size() != 2 {
			t.Fatalf("pod %s holds CPUs %s; want 2", p.Name, held.CPUs())
		}
		devices := allocation.HoldingsOf(held).Devices()
		out[p.Name] = fmt.Sprint(held.CPUs(), devices)
	}
	return out
}

func has(pods []v1.Pod, p v1.Pod) bool {
	for _, old := range pods {
		if old.UID == p.UID && old.Spec.NodeName == p.Spec.NodeName {
			return true
		}
	}
	return false
}

func gpuPods(t *testing.T, c rig.Cluster) []v1.Pod {
	t.Helper()
	list, err := c.Client.CoreV1().Pods(c.Namespace).List(t.Context(),
		metav1.ListOptions{LabelSelector: "app=gpus"})
	if err != nil || len(list.Items) != 10 {
		t.Fatalf("%d pods: %v", len(list.Items), err)
	}
	return list.Items
}

// hollow is a process with many nodes.
type hollow struct {
	t   *testing.T
	cmd *exec.Cmd
	out *bytes.Buffer
}

func startHollow(t *testing.T, c rig.Cluster, root string, more ...string) *hollow {
	t.Helper()
	binary, err := harness.Lab()
	if err != nil {
		t.Fatal(err)
	}
	h := &hollow{t: t, out: new(bytes.Buffer)}
	if more == nil {
		more = []string{"--machine=fixture:playground=12", "--machine=fixture:eight-node=8"}
	}
	h.cmd = exec.Command(binary, append([]string{"nodes", "--kubeconfig=" + c.AdminKubeconfig(),
		"--root-dir=" + root, "--label=hollow=yes", "--taint=hollow=yes:NoSchedule", "--cleanup",
		"--topology-manager-policy=single-numa-node"}, more...)...)
	h.cmd.Stdout, h.cmd.Stderr = h.out, h.out
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if h.cmd.ProcessState == nil {
			h.end()
		}
	})
	return h
}

// kill ends the process as a crash would.
func (h *hollow) kill() {
	h.t.Helper()
	if err := h.cmd.Process.Kill(); err != nil {
		h.t.Fatal(err)
	}
	_ = h.cmd.Wait() // it was killed
}

// end stops the process as a user does.
func (h *hollow) end() {
	h.t.Helper()
	err := errors.Join(h.cmd.Process.Signal(syscall.SIGTERM), h.cmd.Wait())
	if err != nil {
		h.t.Errorf("the nodes ended with %v:\n%s", err, h.out)
	}
}
