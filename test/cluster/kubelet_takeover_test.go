package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
	"github.com/numalet/numalet/test/cluster/rig"
	containerdrig "github.com/numalet/numalet/test/containerd/rig"
)

// takenPods are pods of each kind for which an agent keeps state.
const takenPods = `
{apiVersion: v1, kind: ConfigMap, metadata: {name: cfg}, data: {agent: none}}
---
{apiVersion: v1, kind: Secret, metadata: {name: key}, stringData: {password: s3cret}}
---
{apiVersion: v1, kind: Pod, metadata: {name: plain}, spec: {containers: [{MAIN}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: gpu}, spec: {containers: [{MAIN, resources: {
 limits: {example.com/gpu: 1}}}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: alone}, spec: {containers: [{MAIN, resources: {
 limits: {cpu: 1, memory: 64Mi, example.com/gpu: 1}}}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: files}, spec: {
 volumes: [{name: cfg, configMap: {name: cfg}}, {name: key, secret: {secretName: key}}],
 containers: [{MAIN, volumeMounts: [{name: cfg, mountPath: /cfg}, {name: key, mountPath: /key}]}]}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {
 replicas: 2, selector: {matchLabels: {app: web}}, template: {
  metadata: {labels: {app: web}}, spec: {containers: [{MAIN}]}}}}
`

// TestTakenOver: a node with pods of the API server goes from the stock kubelet to numalet and
// back, once with the agents killed and once stopped. No container notices, watchers of pods and
// node see no change, and volumes are still updated.
func TestTakenOver(t *testing.T) { testTakenOver(t) }

// TestTakenOverSystemd is TestTakenOver with the cgroup driver systemd.
func TestTakenOverSystemd(t *testing.T) {
	if containerdrig.Systemd(t) {
		testTakenOver(t)
	}
}

func testTakenOver(t *testing.T) {
	t.Helper()
	c := rig.Start(t)
	n, d, _ := containerdrig.Node(t)
	rig.StockKubelet(t, n)
	node := c.Join(n, "taken")
	s := switched{t, n, runtimeapi.NewRuntimeServiceClient(dial(t, d.Endpoint())), n.Program}
	n.Settings["cpuManagerReconcilePeriod"] = "1s"
	n.Settings["syncFrequency"] = "2s" // the kubelet's default updates volumes after a minute and more
	s.Plugin("example.com/gpu", "--devices=3", "--nodes=0")
	seen := &witness{taken: node.Name}
	var names []string
	var before map[string]fact
	for i, agent := range []string{"kubelet", "numalet", "kubelet", "numalet", "kubelet"} {
		seen.says(agent)
		s.begin(agent)
		if i == 0 {
			c.AwaitReady(node.Name)
			s.awaitDevices()
			names = runTaken(t, c)
			before = s.settled(names)
			follow(t, c, "pods", c.Namespace, seen.pod)
			follow(t, c, "nodes", "", seen.node)
		}
		visitor := fmt.Sprintf("visitor%d", i)
		c.Apply(strings.Replace(bound(node.Name, visitor, ""), "registry.test/work:1",
			containerd.WorkImage, 1))
		await(t, c, c.Namespace, visitor, runs)
		c.MustRun("delete", "pod", visitor, "--timeout=1m")
		s.seesUpdates(c, agent, before["files"].PID)
		if now, err := s.facts(names); err != nil || !reflect.DeepEqual(now, before) {
			t.Errorf("step %d, %s: %v\nbefore: %+v\nnow:    %+v", i, agent, err, before, now)
		}
		if i < 2 {
			s.Kill()
		} else if err := s.Stop(); err != nil {
			t.Errorf("%s stopped: %v", agent, err)
		}
	}
	if alone := before["alone"]; len(alone.Own) != 1 || len(alone.Devices) != 1 {
		t.Errorf("not what this test is about: %+v", before)
	}
	for _, what := range seen.all() {
		t.Error(what)
	}
}

// settled waits until all pods run, and the shared containers have left the exclusive CPUs of
// others, which takes the kubelet a while.
func (s switched) settled(names []string) (facts map[string]fact) {
	s.t.Helper()
	s.Eventually("exclusive CPUs are exclusive", func() (err error) {
		if facts, err = s.facts(names); err != nil {
			return err
		}
		for name, one := range facts {
			allowed, err := cpuset.Parse(one.Allowed)
			if err != nil {
				return err
			}
			for other, has := range facts {
				for _, cpu := range has.Own {
					if other != name && allowed.Contains(int(cpu)) {
						return fmt.Errorf("%s may run on CPU %d of %s", name, cpu, other)
					}
				}
			}
		}
		return nil
	})
	return facts
}

// seesUpdates writes the agent's name into the config map and waits until the process in the
// container sees it beside what did not change.
func (s switched) seesUpdates(c rig.Cluster, agent string, pid int) {
	s.t.Helper()
	c.MustRun("patch", "configmap", "cfg", "--patch", `{"data": {"agent": "`+agent+`"}}`)
	inside := fmt.Sprintf("/proc/%d/root", pid)
	s.Eventually("the change is seen inside", func() error {
		text, err := os.ReadFile(filepath.Join(inside, "cfg/agent"))
		if err == nil && string(text) != agent {
			err = fmt.Errorf("it has %q", text)
		}
		return err
	})
	for name, want := range map[string]string{
		"key/password": "s3cret",
		"var/run/secrets/kubernetes.io/serviceaccount/namespace": c.Namespace,
	} {
		if text, err := os.ReadFile(filepath.Join(inside, name)); string(text) != want {
			s.t.Errorf("%s: inside, %s has %q: %v", agent, name, text, err)
		}
	}
}

// runTaken creates the pods, waits until all are ready, and returns their names.
func runTaken(t *testing.T, c rig.Cluster) []string {
	t.Helper()
	c.Apply(strings.ReplaceAll(takenPods, "MAIN", "name: main, image: "+containerd.WorkImage))
	c.MustRun("rollout", "status", "deployment/web", "--timeout=1m")
	c.MustRun("wait", "--for=condition=Ready", "pod", "--all", "--timeout=1m")
	return strings.Fields(c.MustRun("get", "pods", "-o", "jsonpath={.items[*].metadata.name}"))
}

// witness records what a watcher sees that is wrong with running pods and their node.
type witness struct {
	taken string     // the node's name; the cluster may have others
	mu    sync.Mutex // guards what follows
	agent string     // the present one
	found []string
}

func (w *witness) says(agent string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.agent = agent
}

func (w *witness) runs() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.agent
}

func (w *witness) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.found)
}

func (w *witness) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found = append(w.found, "under "+w.agent+": "+fmt.Sprintf(format, args...))
}

func (w *witness) pod(p *v1.Pod, gone bool) {
	if strings.HasPrefix(p.Name, "visitor") {
		return
	}
	switch {
	case gone, p.DeletionTimestamp != nil:
		w.note("pod %s goes", p.Name)
	case !runs(p):
		w.note("pod %s is %+v", p.Name, p.Status)
	case p.Status.ContainerStatuses[0].RestartCount != 0:
		w.note("the container of pod %s was restarted", p.Name)
	}
}

func (w *witness) node(n *v1.Node, gone bool) {
	if n.Name != w.taken {
		return
	}
	if gone {
		w.note("the node goes")
	}
	for _, c := range n.Status.Conditions {
		if (c.Type == v1.NodeReady) != (c.Status == v1.ConditionTrue) {
			w.note("the node has %s=%s %s %s", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	for _, taint := range n.Spec.Taints {
		w.note("the node has the taint %s", taint.ToString())
	}
	// A kubelet has none until the plugin has registered again.
	if devices := n.Status.Allocatable["example.com/gpu"]; devices.Value() != 3 &&
		w.runs() != "kubelet" {
		w.note("the node has %s devices", &devices)
	}
}
