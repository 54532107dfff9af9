package guest_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
	"github.com/numalet/numalet/cmd/numalet-lab/containerd/workload"
	"github.com/numalet/numalet/cmd/numalet-lab/sim"
	"github.com/numalet/numalet/test/harness"
	"github.com/numalet/numalet/topology"
)

// The resources, and the PCI classes of the functions that they are.
const (
	nic, nicClass   = "example.com/nic", "0x0200"
	disk, diskClass = "example.com/disk", "0x0100"
)

// home has the files of the agent and the runtime, on the disk that outlives the guest.
const home = "/node"

// guest is the node: the agent, with a device plugin for each resource, on a containerd.
type guest struct {
	t *testing.T
	*harness.Node
	plugins map[string]*sim.Client
}

// as is the node in a subtest. The agent is started and stopped through the original.
func (g guest) as(t *testing.T) guest {
	g.t, g.Node = t, g.Node.As(t)
	return g
}

// newGuest returns a node on a runtime. The agent does not run yet, the plugins do.
func newGuest(t *testing.T, endpoint string) guest {
	t.Helper()
	g := guest{t: t, Node: harness.NewOn(t, endpoint), plugins: map[string]*sim.Client{}}
	g.Dir, g.Root, g.Manifests = home, home+"/root", home+"/manifests"
	if err := os.MkdirAll(g.Manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	g.Args = []string{"--root-dir=" + g.Root, "--hostname-override=node", "-v=4"}
	for name, value := range map[string]any{
		"staticPodPath": g.Manifests, "podLogsDir": home + "/logs", "cgroupsPerQOS": true,
		"cpuManagerPolicyOptions": map[string]string{"full-pcpus-only": "true"},
		"reservedSystemCPUs":      "0-1",
		"systemReserved":          map[string]string{"memory": "100Mi"},
		"evictionHard":            map[string]string{"memory.available": "100Mi"},
		"memoryManagerPolicy":     "Static",
		"reservedMemory": []any{map[string]any{
			"numaNode": 0, "limits": map[string]string{"memory": "200Mi"}}},
	} {
		g.Settings[name] = value
	}
	for resource, class := range map[string]string{nic: nicClass, disk: diskClass} {
		g.plugins[resource] = startPlugin(t, g.Root, resource, class)
	}
	return g
}

// startPlugin offers the PCI functions of a class, with their addresses as ids, on the nodes where
// the kernel has them.
func startPlugin(t *testing.T, root, resource, class string) *sim.Client {
	t.Helper()
	cfg := sim.Config{Resource: resource, Dir: filepath.Join(root, "device-plugins"),
		Control: filepath.Join("/run", sim.Kind(resource)+".ctl"), Out: os.Stderr}
	if class == diskClass {
		cfg.Answer.CDIKind = resource
	}
	for _, address := range pciFunctions(t, class) {
		cfg.Devices = append(cfg.Devices, sim.Device{ID: address, Healthy: true,
			Nodes: []topology.NodeID{topology.NodeID(pciNode(t, address))}})
	}
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil { // the agent may not have been there yet
		t.Fatal(err)
	}
	plugin, err := sim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- plugin.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("device plugin: %v", err)
		}
	})
	return sim.NewClient(cfg.Control)
}

// calls returns how often Allocate of the plugins was called.
func (g guest) calls() (n int) {
	g.t.Helper()
	for _, plugin := range g.plugins {
		state, err := plugin.State(g.t.Context())
		if err != nil {
			g.t.Fatal(err)
		}
		n += state.Calls[sim.Allocate]
	}
	return n
}

// describeDisks tells containerd which device node each disk is (cncf.io/cdi).
func describeDisks(t *testing.T, dir string) {
	t.Helper()
	var devices []any
	for _, address := range pciFunctions(t, diskClass) {
		node := filepath.Join("/dev", blockDevice(t, address))
		devices = append(devices, map[string]any{"name": address, "containerEdits": map[string]any{
			"deviceNodes": []any{map[string]any{"path": node}}}})
	}
	spec, err := json.Marshal(map[string]any{"cdiVersion": "0.6.0", "kind": disk,
		"devices": devices})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "disk.json"), spec, 0o644); err != nil {
		t.Fatal(err)
	}
}

// blockDevice returns the name of a PCI function's block device.
func blockDevice(t *testing.T, address string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(pciDir, address, "virtio*/block/*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("block devices of %s: %v %v", address, found, err)
	}
	return filepath.Base(found[0])
}

// ask is the request of a pod's container.
type ask struct {
	cpu, memory string
	huge        int // MiB of huge pages
	nics, disks int
	// enis are interfaces to be put into a network of the pod's own.
	enis int
	// rdmas are interfaces whose RDMA devices it has, in the host's network.
	rdmas int
	// request is that for memory, where it is not the limit; uses are MiB, where it is not allocated.
	request string
	uses    int
	// users: the pod has a user namespace of its own.
	users bool
}

// create writes the manifest of a pod, whose limits are its requests but where it says otherwise.
func (g guest) create(name string, a ask) {
	g.t.Helper()
	limits, requests := map[string]any{}, map[string]any{}
	args := []string{"--print"}
	if a.cpu != "" {
		limits["cpu"], limits["memory"] = a.cpu, a.memory
		args = append(args, fmt.Sprintf("--allocate=%d", cmp.Or(a.uses, allocated)))
	}
	if a.request != "" {
		requests["memory"] = a.request
	}
	for resource, n := range map[string]int{nic: a.nics, disk: a.disks, eniResource: a.enis,
		rdmaResource: a.rdmas} {
		if n > 0 {
			limits[resource] = fmt.Sprint(n)
		}
	}
	if a.huge > 0 {
		limits["hugepages-2Mi"] = fmt.Sprintf("%dMi", a.huge)
		args = append(args, fmt.Sprintf("--allocate-huge=%d", a.huge))
	}
	manifest, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			// A network of its own takes the emulator seconds.
			"hostNetwork": a.enis == 0 && !a.users, "hostUsers": !a.users,
			"containers": []any{map[string]any{
				"name": "main", "image": containerd.WorkImage, "args": args,
				"resources": map[string]any{"limits": limits, "requests": requests},
			}},
		},
	})
	if err != nil {
		g.t.Fatal(err)
	}
	g.Pod(name, string(manifest))
}

// allocated is how many MiB each pod with memory of its own uses.
const allocated = 16

// run creates pods and waits until they run.
func (g guest) run(asks map[string]ask) {
	g.t.Helper()
	for _, name := range slices.Sorted(maps.Keys(asks)) {
		g.create(name, asks[name])
	}
	for name := range asks {
		g.running(name)
	}
}

// running waits until the container of a pod runs: its pod is Running already while a container
// that has ended is to be started again.
func (g guest) running(name string) (pod v1.Pod) {
	g.t.Helper()
	g.Eventually("the container of "+name+" runs", func() error {
		pods, err := g.Pods()
		if err != nil {
			return err
		}
		pod = pods[name+"-node"]
		statuses := pod.Status.ContainerStatuses
		if len(statuses) == 0 || statuses[0].State.Running == nil {
			return fmt.Errorf("its pod is %s: %s %s: %+v", pod.Status.Phase, pod.Status.Reason,
				pod.Status.Message, statuses)
		}
		return nil
	})
	return pod
}

// rejected creates a pod that must be rejected for its topology, and removes it.
func (g guest) rejected(name string, a ask) {
	g.t.Helper()
	g.create(name, a)
	pod := g.AwaitPhase(name+"-node", v1.PodFailed)
	row(g.t, "%s: %s", name, pod.Status.Reason)
	if pod.Status.Reason != "TopologyAffinityError" {
		g.t.Errorf("pod %s: %s: %s, want TopologyAffinityError", name, pod.Status.Reason,
			pod.Status.Message)
	}
	g.remove(name)
}

// remove removes pods and waits until the agent has written that nothing belongs to them: before
// that other pods get what is left.
func (g guest) remove(names ...string) {
	g.t.Helper()
	pods, err := g.Pods()
	if err != nil {
		g.t.Fatal(err)
	}
	for _, name := range names {
		g.RemovePod(name)
	}
	for _, name := range names {
		g.AwaitGone(name + "-node")
		g.Eventually(name+" holds nothing", func() error {
			return g.unnamed(string(pods[name+"-node"].UID))
		})
	}
}

// unnamed reports whether the files of assignments do not name the pod any more. The kubelet's is
// written last, when what the pod held is free for others.
func (g guest) unnamed(uid string) error {
	state, err := store.ReadState(filepath.Join(g.Root, store.FileName))
	if errors.Is(err, os.ErrNotExist) {
		return nil // no pod has held anything yet
	}
	if err != nil {
		return err
	}
	if _, has := state.Pods[types.UID(uid)]; has {
		return errors.New("it is in " + store.FileName)
	}
	exported, err := os.ReadFile(filepath.Join(g.Root, "cpu_manager_state"))
	if err == nil && strings.Contains(string(exported), uid) {
		err = errors.New("it is in cpu_manager_state")
	}
	return err
}

// id returns the container's id in the runtime.
func id(pod v1.Pod) string {
	if len(pod.Status.ContainerStatuses) == 0 {
		return ""
	}
	return strings.TrimPrefix(pod.Status.ContainerStatuses[0].ContainerID, "containerd://")
}

// report waits for what the container tells of what it sees, in its own words.
func (g guest) report(pod v1.Pod) (r workload.Report) {
	g.t.Helper()
	pattern := filepath.Join(home, "logs", "*_"+string(pod.UID), "main", "*.log")
	g.Eventually("the container of "+pod.Name+" tells what it sees", func() error {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			return fmt.Errorf("there is no log %s: %w", pattern, err)
		}
		text, err := os.ReadFile(slices.Max(files))
		if err != nil {
			return err
		}
		var message strings.Builder
		for line := range strings.Lines(string(text)) { // time stream tag text
			if parts := strings.SplitN(strings.TrimSpace(line), " ", 4); len(parts) == 4 {
				message.WriteString(parts[3])
			}
		}
		return json.Unmarshal([]byte(message.String()), &r)
	})
	return r
}
