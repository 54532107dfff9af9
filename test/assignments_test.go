package test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/assigned"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/deviceplugin/checkpoint"
	"github.com/numalet/numalet/test/harness"
)

// The machine is the fixture "playground": 64 CPUs, 4 NUMA nodes of 16 CPUs, two sockets.
const nodeCPUs = 16

func cpus(t testing.TB, list string) cpuset.CPUSet {
	t.Helper()
	set, err := cpuset.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func placementOf(t testing.TB, n *harness.Node, container string) assigned.Row {
	t.Helper()
	rows, err := n.Placements()
	if err != nil {
		t.Fatal(err)
	}
	row, ok := rows[container]
	if !ok {
		t.Fatalf("there is no row %s in %v", container, rows)
	}
	return row
}

func TestExclusiveCPUs(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Settings["cpuManagerReconcilePeriod"] = "100ms"
	n.Start()
	n.Pod("shared", plain("shared"))
	n.AwaitPhase("shared-node", v1.PodRunning)
	before := cpus(t, container(t, n, "shared-node", "main").CPUs)
	if before.Size() < 60 {
		t.Errorf("the shared pool of the empty node is %v", before)
	}

	n.Pod("own", limited("own", "cpu: 4, memory: 1Gi"))
	n.AwaitPhase("own-node", v1.PodRunning)
	created := only(t, n, call{method: "CreateContainer", pod: "own-node"})
	started := only(t, n, call{method: "StartContainer", pod: "own-node"})
	own := cpus(t, created.CPUs)
	if own.Size() != 4 || placementOf(t, n, "own-node/main").CPUs != own.String() {
		t.Errorf("created with CPUs %v; /placements has %+v", own,
			placementOf(t, n, "own-node/main"))
	}
	if got := container(t, n, "own-node", "main").Resources.GetCpuQuota(); got > 0 {
		t.Errorf("exclusive CPUs come with a quota of %d", got)
	}
	// The shared container left these CPUs before their new owner started.
	update := only(t, n, call{method: "UpdateContainerResources", pod: "shared-node"})
	if got := cpus(t, update.CPUs); !got.Equals(before.Difference(own)) {
		t.Errorf("the shared container moved to %v, want %v", got, before.Difference(own))
	}
	if update.End > started.Begin {
		t.Errorf("the shared container was still moving when the exclusive one started: %+v, %+v",
			update, started)
	}

	// In steady state nothing is updated, however often the agent relists.
	looks := n.Runtime.State().Calls["ListContainers"] + n.Runtime.State().Calls["ListPodSandbox"]
	n.Pod("tick", limited("tick", "cpu: 500m, memory: 1Gi"))
	n.AwaitPhase("tick-node", v1.PodRunning)
	n.RemovePod("tick")
	n.AwaitGone("tick-node")
	if now := n.Runtime.State().Calls; now["ListContainers"]+now["ListPodSandbox"] <= looks {
		t.Error("the runtime was not looked at meanwhile")
	}
	if got := calls(n, call{method: "UpdateContainerResources"}); len(got) != 1 {
		t.Errorf("containers were updated in steady state: %+v", got)
	}

	n.RemovePod("own")
	n.AwaitGone("own-node")
	awaitContainer(n, "shared-node", "main", func(c crisim.Container) error {
		if c.CPUs != before.String() {
			return fmt.Errorf("its CPUs are %s, want %v again", c.CPUs, before)
		}
		return nil
	})
	grown := calls(n, call{method: "UpdateContainerResources", pod: "shared-node"})
	stopped := calls(n, call{method: "StopContainer", pod: "own-node"})
	if len(grown) != 2 || len(stopped) == 0 || stopped[0].End > grown[1].Begin {
		t.Errorf("the pool grew before the exclusive container had ended: %+v, %+v", stopped, grown)
	}
}

func TestExclusiveCPUsOfInitContainersAreUsedAgain(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	n.Pod("app", manifestOf("app", `initContainers:
  - {name: init, image: sim.local/app, resources: {limits: {cpu: 4, memory: 1Gi}}}
  containers:
  - {name: main, image: sim.local/app, resources: {limits: {cpu: 2, memory: 1Gi}}}
  - {name: shared, image: sim.local/app, resources: {limits: {cpu: 1500m, memory: 1Gi}}}`,
		"init: exit=0 after=1ms"))
	n.AwaitPhase("app-node", v1.PodRunning)
	init := cpus(t, container(t, n, "app-node", "init").CPUs)
	main := cpus(t, container(t, n, "app-node", "main").CPUs)
	shared := cpus(t, container(t, n, "app-node", "shared").CPUs)
	if init.Size() != 4 || main.Size() != 2 || !main.IsSubsetOf(init) {
		t.Errorf("init had %v, main has %v; want 4 and 2 of the same", init, main)
	}
	if !shared.Intersection(main).IsEmpty() {
		t.Errorf("the shared container runs on %v, beside main on %v", shared, main)
	}
}

func TestDevicesAndCheckpoint(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	n.Plugin("example.com/gpu", "--devices=8", "--nodes=0-3")
	n.Pod("app", limited("app", "cpu: 2, memory: 1Gi, example.com/gpu: 2"))
	pod := n.AwaitPhase("app-node", v1.PodRunning)
	row := placementOf(t, n, "app-node/main")
	ids := row.Devices["example.com/gpu"]
	if len(ids) != 2 || row.Aligned == nil || !*row.Aligned {
		t.Errorf("placement: %+v, want 2 devices on the node of the CPUs", row)
	}

	path := filepath.Join(n.Root, "device-plugins", "kubelet_internal_checkpoint")
	n.Eventually("the kubelet's checkpoint has the pod", func() error {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		entries, registered, err := checkpoint.Decode(data)
		if err != nil {
			return err
		}
		if got := len(registered["example.com/gpu"]); got != 8 {
			return fmt.Errorf("%d devices are registered", got)
		}
		for _, e := range entries {
			answer, err := e.Response()
			if err != nil {
				return err
			}
			held := e.IDs()
			slices.Sort(held)
			if e.PodUID == string(pod.UID) && e.ContainerName == "main" && len(answer.Envs) > 0 &&
				e.ResourceName == "example.com/gpu" && slices.Equal(held, ids) {
				return nil
			}
		}
		return fmt.Errorf("it has %+v", entries)
	})
}

func TestCapacity(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Settings["maxPods"] = 3
	n.Args = append(n.Args, "--device-admission-wait=0")
	n.Start()
	n.Plugin("example.com/gpu", "--devices=2")
	n.Eventually("the plugin's devices are known", func() error {
		data, err := os.ReadFile(filepath.Join(n.Root, "device-plugins",
			"kubelet_internal_checkpoint"))
		if err != nil {
			return err
		}
		_, registered, err := checkpoint.Decode(data)
		if err == nil && len(registered["example.com/gpu"]) != 2 {
			err = fmt.Errorf("registered are %v", registered)
		}
		return err
	})
	n.Pod("big", limited("big", "cpu: 2500m, memory: 1Gi"))
	n.AwaitPhase("big-node", v1.PodRunning)
	tests := []struct{ name, limits, reason, message string }{
		{"cpu", "cpu: 61, memory: 1Gi", "OutOfcpu",
			"Node didn't have enough resource: cpu, requested: 61000, used: 2500, capacity: 63000"},
		{"memory", "cpu: 1500m, memory: 256Gi", "OutOfmemory",
			"Node didn't have enough resource: memory, requested: 274877906944, " +
				"used: 1073741824, capacity: "},
		{"absent", "cpu: 1500m, memory: 1Gi, example.com/none: 1", "OutOfexample.com/none",
			"Node didn't have enough resource: example.com/none, requested: 1, used: 0, " +
				"capacity: 0"},
		{"devices", "cpu: 1500m, memory: 1Gi, example.com/gpu: 3", "UnexpectedAdmissionError",
			"Allocate failed due to requested number of devices unavailable for example.com/gpu. " +
				"Requested: 3, Available: 2, which is unexpected"},
	}
	for _, tc := range tests {
		n.Pod(tc.name, limited(tc.name, tc.limits))
		reason, message := awaitRejected(n, tc.name+"-node")
		want := "Pod was rejected: " + tc.message
		if reason != tc.reason || !strings.HasPrefix(message, want) {
			t.Errorf("%s: rejected with %s: %s\nwant %s: %s",
				tc.name, reason, message, tc.reason, want)
		}
		if got := calls(n, call{pod: tc.name + "-node"}); len(got) != 0 {
			t.Errorf("%s: the runtime was called for a rejected pod: %+v", tc.name, got)
		}
	}
	// Rejected pods hold nothing: two more pods fit, a third does not.
	for _, name := range []string{"second", "third"} {
		n.Pod(name, plain(name))
		n.AwaitPhase(name+"-node", v1.PodRunning)
	}
	n.Pod("fourth", plain("fourth"))
	reason, message := awaitRejected(n, "fourth-node")
	const full = "Pod was rejected: Node didn't have enough resource: pods, requested: 1, " +
		"used: 3, capacity: 3"
	if reason != "OutOfpods" || message != full {
		t.Errorf("rejected with %s: %s", reason, message)
	}
	// A rejected pod stays rejected until its manifest changes or is removed.
	n.RemovePod("big")
	n.AwaitGone("big-node")
	n.AwaitPhase("fourth-node", v1.PodFailed)
	metrics := n.Get("/metrics")
	for _, want := range []string{
		`kubelet_admission_rejections_total{reason="OutOfcpu"} 1`,
		`kubelet_admission_rejections_total{reason="OutOfExtendedResources"} 1`,
		`kubelet_admission_rejections_total{reason="OutOfpods"} 1`,
		`kubelet_admission_rejections_total{reason="UnexpectedAdmissionError"} 1`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}

func TestTopologyPolicies(t *testing.T) {
	// Pods that fit one node, pods that only fit two, and pods with devices on one node and CPUs on
	// others.
	type want map[string]string // pod: "Running aligned", "Running", or the rejection's reason
	const (
		running = "Running"
		aligned = "Running aligned"
		reject  = "TopologyAffinityError"
	)
	tests := map[string]want{
		"none":             {"small": running, "wide": running, "torn": running},
		"best-effort":      {"small": aligned, "wide": running, "torn": running},
		"restricted":       {"small": aligned, "wide": running, "torn": reject},
		"single-numa-node": {"small": aligned, "wide": reject, "torn": reject},
	}
	pods := map[string]string{
		"small": "cpu: 4, memory: 1Gi, example.com/nic: 1",
		"wide":  fmt.Sprintf("cpu: %d, memory: 1Gi", nodeCPUs+4),
		// No node has 2 devices, though each has 2 CPUs.
		"torn": "cpu: 2, memory: 1Gi, example.com/nic: 2",
	}
	for policy, want := range tests {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			for name, outcome := range want {
				if policy == "none" && outcome == running && name == "small" {
					continue // it may be aligned by chance
				}
				n := harness.New(t)
				n.Settings["topologyManagerPolicy"] = policy
				n.Start()
				n.Plugin("example.com/nic", "--devices=4", "--nodes=0-3")
				n.Pod(name, limited(name, pods[name]))
				checkOutcome(t, n, policy, name, outcome)
			}
		})
	}
}

func checkOutcome(t *testing.T, n *harness.Node, policy, name, want string) {
	t.Helper()
	pod := awaitPod(n, name+"-node", func(pod v1.Pod) error {
		if pod.Status.Phase == v1.PodPending {
			return fmt.Errorf("it is pending: %s", pod.Status.Message)
		}
		return nil
	})
	got := string(pod.Status.Phase)
	if got == "Failed" {
		got = pod.Status.Reason
		const locality = "Pod was rejected: Resources cannot be allocated with Topology locality"
		if pod.Status.Message != locality {
			t.Errorf("%s, pod %s: message %q", policy, name, pod.Status.Message)
		}
	} else if a := placementOf(t, n, name+"-node/main").Aligned; a != nil && *a {
		got += " aligned"
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s, pod %s (-want +got):\n%s", policy, name, diff)
	}
}
