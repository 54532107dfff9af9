package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
	"github.com/numalet/numalet/cmd/numalet/preflight"
	"github.com/numalet/numalet/test/cluster/rig"
	containerdrig "github.com/numalet/numalet/test/containerd/rig"
	"github.com/numalet/numalet/test/harness"
)

// fact is what must not change about a container when the node gets another agent.
type fact struct {
	Container, Sandbox string
	Attempt            uint32
	PID                int
	// Allowed is the set of CPUs on which the kernel runs it; Own and Devices are its assignment,
	// as the agent reports it.
	Allowed string
	Own     []int64
	Devices []string
}

// switched is a node that changes between two agents.
type switched struct {
	t *testing.T
	*harness.Node
	runtime runtimeapi.RuntimeServiceClient
	kubelet []string // the Program of the stock kubelet
}

// TestSwitch: a node with static pods goes from the stock kubelet to numalet, back, and to numalet
// again, on one containerd. No container notices.
func TestSwitch(t *testing.T) {
	t.Run("without uid", func(t *testing.T) { testSwitch(t, "") })
	t.Run("with uid", func(t *testing.T) {
		testSwitch(t, "uid: 3b1c7c0e-5b0e-4f0e-9d55-6c1f4a0f2c1")
	})
}

// TestSwitchSystemd is TestSwitch with the cgroup driver systemd.
func TestSwitchSystemd(t *testing.T) {
	if containerdrig.Systemd(t) {
		testSwitch(t, "")
	}
}

// testSwitch gives the pods metadata.uid, if uid is not empty, with a digit appended. Then one pod
// starts under numalet, too (a kubelet does not find a pod without that UID again), and agents are
// killed.
func testSwitch(t *testing.T, uid string) {
	n, d, _ := containerdrig.Node(t)
	rig.StockKubelet(t, n)
	s := switched{t, n, runtimeapi.NewRuntimeServiceClient(dial(t, d.Endpoint())), n.Program}
	s.Plugin("example.com/gpu", "--devices=5", "--nodes=0")
	var names []string
	run := func(name, resources string) {
		metadata := "name: " + name
		if uid != "" {
			metadata += fmt.Sprintf(", %s%d", uid, len(names))
		}
		s.Pod(name, podManifest(metadata, resources))
		names = append(names, name)
	}
	before := map[string]fact{}
	for i, agent := range []string{"kubelet", "numalet", "kubelet", "numalet"} {
		s.begin(agent)
		switch {
		case i == 0:
			s.awaitDevices() // before that the kubelet admits pods without
			run("plain", "{}")
			run("gpu", `{limits: {example.com/gpu: "1"}}`)
			run("alone", `{limits: {cpu: "1", memory: 64Mi, example.com/gpu: "1"}}`)
			run("pair", `{requests: {memory: 16Mi}, limits: {example.com/gpu: "2"}}`)
		case i == 1 && uid != "":
			run("late", `{limits: {example.com/gpu: "1"}}`)
		}
		began := s.await(names)
		if i == 0 {
			s.preflight(began)
		}
		s.visit(fmt.Sprintf("visitor%d", i))
		now, err := s.facts(names)
		for name := range began {
			if _, known := before[name]; !known {
				before[name] = began[name]
			}
		}
		if err != nil || !reflect.DeepEqual(now, before) {
			t.Errorf("step %d, %s: %v\nbefore: %+v\nnow:    %+v", i, agent, err, before, now)
		}
		if uid != "" {
			s.Kill()
		} else if err := s.Stop(); err != nil {
			t.Errorf("%s stopped: %v", agent, err)
		}
	}
	if alone := before["alone"]; len(alone.Own) != 1 || len(alone.Devices) != 1 ||
		len(before["pair"].Devices) != 2 {
		t.Errorf("not what this test is about: %+v", before)
	}
}

// preflight: while the kubelet runs, "numalet preflight" says of its pods what numalet is about to keep.
func (s switched) preflight(now map[string]fact) {
	s.t.Helper()
	binary, err := harness.Binary()
	if err != nil {
		s.t.Fatal(err)
	}
	args := append([]string{"preflight", "-o", "json", "--config=" + filepath.Join(s.Dir, "config.yaml")}, s.Args...)
	out, err := exec.Command(binary, args...).Output()
	var report preflight.Report
	if err != nil || json.Unmarshal(out, &report) != nil || !report.Ready {
		s.t.Errorf("preflight: %v\n%s", err, out)
	}
	for name, f := range now {
		if len(f.Devices) == 0 {
			continue
		}
		keeps := "example.com/gpu " + strings.Join(f.Devices, ",")
		if len(f.Own) == 1 {
			keeps = fmt.Sprintf("CPUs %d, %s", f.Own[0], keeps)
		}
		if !slices.ContainsFunc(report.Findings, func(found preflight.Finding) bool {
			return found.Subject == "default/"+name+"-node" && strings.Contains(found.Text, keeps)
		}) {
			s.t.Errorf("preflight does not say that %s keeps %s:\n%s", name, keeps, out)
		}
	}
}

// awaitDevices waits until the agent has heard of the plugin.
func (s switched) awaitDevices() {
	s.t.Helper()
	s.Eventually("the agent has devices", func() error {
		got, err := s.resources().GetAllocatableResources(context.Background(),
			&podresourcesv1.AllocatableResourcesRequest{})
		if err == nil && len(got.Devices) == 0 {
			err = fmt.Errorf("it has %+v", got)
		}
		return err
	})
}

// await waits until all of the pods run.
func (s switched) await(names []string) (facts map[string]fact) {
	s.t.Helper()
	s.Eventually("all pods run", func() (err error) {
		facts, err = s.facts(names)
		return err
	})
	return facts
}

func podManifest(metadata, resources string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {%s}\nspec:\n"+
		"  terminationGracePeriodSeconds: 1\n  containers:\n"+
		"  - {name: main, image: %q, resources: %s}\n", metadata, containerd.WorkImage, resources)
}

// begin starts the agent on the node that the other one has left.
func (s switched) begin(agent string) {
	s.t.Helper()
	s.Program = nil
	if agent == "kubelet" {
		s.Program = s.kubelet
	}
	s.Start()
}

// visit runs a short pod, so that the agent has seen everything on the node by its end.
func (s switched) visit(name string) {
	s.t.Helper()
	s.Pod(name, podManifest("name: "+name, "{}"))
	s.AwaitPhase(name+"-node", v1.PodRunning)
	s.RemovePod(name)
	s.AwaitGone(name + "-node")
}

// facts returns the facts of the pods, by name, and an error if one of them does not run.
func (s switched) facts(names []string) (map[string]fact, error) {
	ctx := context.Background()
	list, err := s.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, err
	}
	held, err := s.held(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]fact{}
	for _, c := range list.Containers {
		name := strings.TrimSuffix(c.Labels["io.kubernetes.pod.name"], "-node")
		if !slices.Contains(names, name) {
			continue
		}
		f, err := s.factOf(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("container of %s: %w", name, err)
		}
		if _, two := out[name]; two {
			return nil, fmt.Errorf("pod %s has a second container", name)
		}
		of := held[name]
		f.Own = of.GetCpuIds()
		for _, d := range of.GetDevices() {
			f.Devices = append(f.Devices, d.DeviceIds...)
		}
		slices.Sort(f.Devices)
		out[name] = f
	}
	if len(out) != len(names) {
		return nil, fmt.Errorf("%d of %d pods run: %+v", len(out), len(names), out)
	}
	return out, nil
}

func (s switched) factOf(ctx context.Context, c *runtimeapi.Container) (f fact, err error) {
	status, err := s.runtime.ContainerStatus(ctx,
		&runtimeapi.ContainerStatusRequest{ContainerId: c.Id, Verbose: true})
	if err != nil {
		return f, err
	}
	if state := status.Status.State; state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return f, fmt.Errorf("it is %s", state)
	}
	var info struct{ PID int }
	if err := json.Unmarshal([]byte(status.Info["info"]), &info); err != nil {
		return f, err
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", info.PID))
	if err != nil {
		return f, err
	}
	_, allowed, _ := strings.Cut(string(raw), "Cpus_allowed_list:\t")
	allowed, _, _ = strings.Cut(allowed, "\n")
	return fact{Container: c.Id, Sandbox: c.PodSandboxId, Attempt: c.Metadata.Attempt,
		PID: info.PID, Allowed: allowed}, nil
}

// held returns what the agent reports to monitoring agents about each pod's container; a static pod
// has the name in its manifest.
func (s switched) held(ctx context.Context) (map[string]*podresourcesv1.ContainerResources,
	error) {
	list, err := s.resources().List(ctx, &podresourcesv1.ListPodResourcesRequest{})
	if err != nil {
		return nil, err
	}
	out := map[string]*podresourcesv1.ContainerResources{}
	for _, p := range list.PodResources {
		out[strings.TrimSuffix(p.Name, "-node")] = p.Containers[0]
	}
	return out, nil
}

func (s switched) resources() podresourcesv1.PodResourcesListerClient {
	return podresourcesv1.NewPodResourcesListerClient(
		dial(s.t, "unix://"+filepath.Join(s.Root, "pod-resources", "kubelet.sock")))
}

// dial connects to a socket until the test ends.
func dial(t *testing.T, endpoint string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}
