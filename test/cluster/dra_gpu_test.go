package cluster_test

import (
	"bufio"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/examples"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// gpuNode is a node whose GPUs are handed out by claim.
type gpuNode struct {
	t *testing.T
	rig.Cluster
	rig.Node
	binary, cdi, orders string
	driver              *exec.Cmd
}

// startDriver starts the GPU plugin as a driver of claims, with the rights of its node.
func (g *gpuNode) startDriver(args ...string) {
	g.t.Helper()
	said, err := os.OpenFile(filepath.Join(g.Dir, "driver.log"),
		os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		g.t.Fatal(err)
	}
	defer said.Close()
	g.driver = exec.Command(g.binary, append([]string{"--dra", "--kubeconfig=" + g.Kubeconfig,
		"--node-name=" + g.Node.Name, "--dra-root-dir=" + g.Root, "--cdi-dir=" + g.cdi,
		"--mock-orders=" + g.orders, "--read-every=1s"}, args...)...)
	g.driver.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	g.driver.Stdout, g.driver.Stderr = said, said
	if err := g.driver.Start(); err != nil {
		g.t.Fatal(err)
	}
}

func (g *gpuNode) killDriver() {
	if g.driver != nil {
		_ = g.driver.Process.Kill()
		_ = g.driver.Wait()
	}
}

// order has something happen to the simulated machine.
func (g *gpuNode) order(text string) {
	g.t.Helper()
	harness.Eventually(g.t, text, func() error {
		conn, err := net.Dial("unix", g.orders)
		if err != nil {
			return err
		}
		defer conn.Close()
		fmt.Fprintln(conn, text)
		answer, err := bufio.NewReader(conn).ReadString('\n')
		if err == nil && answer != "ok\n" {
			err = fmt.Errorf("%s", answer)
		}
		return err
	})
}

// published returns the node's ResourceSlices.
func (g *gpuNode) published() ([]resourcev1.ResourceSlice, error) {
	list, err := g.Client.ResourceV1().ResourceSlices().List(g.t.Context(), metav1.ListOptions{
		FieldSelector: resourcev1.ResourceSliceSelectorNodeName + "=" + g.Node.Name})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// devices returns the published devices by name.
func (g *gpuNode) devices() (map[string]resourcev1.Device, error) {
	list, err := g.published()
	all := map[string]resourcev1.Device{}
	for _, slice := range list {
		for _, d := range slice.Spec.Devices {
			all[d.Name] = d
		}
	}
	return all, err
}

func (g *gpuNode) awaitDevices(count int) {
	g.t.Helper()
	harness.Eventually(g.t, fmt.Sprintf("%d devices are published", count), func() error {
		all, err := g.devices()
		if err == nil && len(all) != count {
			err = fmt.Errorf("there are %d", len(all))
		}
		return err
	})
}

// specs returns the CDI specs of claims.
func (g *gpuNode) specs() []string {
	g.t.Helper()
	found, err := filepath.Glob(filepath.Join(g.cdi, "*-claim_*"))
	if err != nil {
		g.t.Fatal(err)
	}
	return found
}

// allocated returns the devices of all claims by the claims' owners.
func (g *gpuNode) allocated() map[string][]string {
	g.t.Helper()
	list, err := g.Client.ResourceV1().ResourceClaims(g.Namespace).List(g.t.Context(),
		metav1.ListOptions{})
	if err != nil {
		g.t.Fatal(err)
	}
	all := map[string][]string{}
	for _, claim := range list.Items {
		if claim.Status.Allocation == nil || len(claim.OwnerReferences) == 0 {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			owner := claim.OwnerReferences[0].Name
			all[owner] = append(all[owner], result.Device)
		}
	}
	return all
}

func onGPUNode(t *testing.T, test func(t *testing.T, g *gpuNode)) {
	for _, name := range []string{"kubelet", "numalet"} {
		t.Run(name, func(t *testing.T) {
			c := rig.Start(t)
			cdi := t.TempDir()
			agent := harness.NewWith(t, crisim.Config{CDIDirs: []string{cdi}})
			if name == "kubelet" {
				rig.StockKubelet(t, agent)
			}
			g := &gpuNode{t: t, Cluster: c, Node: c.Join(agent, "gpus-"+name), cdi: cdi,
				binary: harness.GPUPlugin(t), orders: filepath.Join(agent.Dir, "orders.sock")}
			t.Cleanup(func() {
				g.killDriver()
				if text, err := os.ReadFile(filepath.Join(agent.Dir, "driver.log")); t.Failed() {
					objects, _ := c.Run("get", "deployment,replicaset,pod", "--output=yaml")
					t.Logf("the objects are\n%s", objects)
					t.Logf("%v: the driver said\n%s", err, text)
				}
			})
			g.Start()
			c.AwaitReady(g.Node.Name)
			test(t, g)
		})
	}
}

// example returns an example whose pods fit this machine.
func example(t *testing.T, from fs.FS, name string) string {
	t.Helper()
	text, err := fs.ReadFile(from, name)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`limits: {[^}]*}`).ReplaceAllString(string(text),
		"limits: {memory: 32Mi}")
}

// TestGPUsByClaim: a cluster hands out a simulated DGX H100 by claim. The examples run, no device
// is given twice, a failed GPU gets no pod and is told of, a claim divides a GPU, a killed driver is
// missed by nobody, and nothing is left.
func TestGPUsByClaim(t *testing.T) {
	onGPUNode(t, func(t *testing.T, g *gpuNode) {
		g.startDriver("--mock=dgxh100", "--dra-mig=dynamic")
		g.order("mig 3 on")
		g.awaitDevices(7 + 18)
		for _, name := range []string{"classes", "inference", "training"} {
			g.Apply(example(t, examples.Cluster, "cluster/claims/"+name+".yaml"))
		}
		g.Apply(example(t, examples.Claims, "claims/mig.yaml"))
		for _, name := range []string{"inference", "training"} {
			g.MustRun("rollout", "status", "deployment/"+name, "--timeout=2m")
		}
		await(t, g.Cluster, g.Namespace, "small", runs)
		g.checkAllocated()
		g.checkListed()
		if found := g.specs(); len(found) != 4 {
			t.Errorf("the CDI specs are %q", found)
		}
		g.killDriver()
		g.startDriver("--mock=dgxh100", "--dra-mig=dynamic") // the machine is new, too
		g.order("mig 3 on")
		g.testFailure()
		g.MustRun("delete", "deployment,pod", "--all", "--timeout=1m")
		harness.Eventually(t, "nothing is left", func() error {
			if found := g.specs(); len(found) > 0 {
				return fmt.Errorf("the CDI specs are %q", found)
			}
			return nil
		})
	})
}

// checkAllocated: each pod has its devices alone, and the four GPUs of one are on one NUMA node.
func (g *gpuNode) checkAllocated() {
	g.t.Helper()
	all, err := g.devices()
	if err != nil {
		g.t.Fatal(err)
	}
	given := map[string]bool{}
	for owner, devices := range g.allocated() {
		nodes := map[int64]bool{}
		for _, name := range devices {
			if given[name] {
				g.t.Errorf("%s is given twice", name)
			}
			given[name] = true
			nodes[*all[name].Attributes["resource.kubernetes.io/numaNode"].IntValue] = true
		}
		if strings.HasPrefix(owner, "training-") && (len(devices) != 4 || len(nodes) != 1) {
			g.t.Errorf("%s has %q on nodes %v", owner, devices, nodes)
		}
	}
	if len(given) != 2+4+1 {
		g.t.Errorf("given are %v", given)
	}
}

// ask returns what a command of numalet says of the node; of a kubelet's, nothing.
func (g *gpuNode) ask(args ...string) string {
	g.t.Helper()
	if !strings.HasSuffix(g.Node.Name, "numalet") {
		return ""
	}
	binary, err := harness.Binary()
	if err != nil {
		g.t.Fatal(err)
	}
	out, err := exec.Command(binary, append(args, "--node="+g.Node.Name, "--kubeconfig="+g.AdminKubeconfig())...).CombinedOutput()
	if err != nil {
		g.t.Errorf("%q: %v\n%s", args, err, out)
	}
	return string(out)
}

// checkListed: numalet's commands show the devices of claims as those of plugins, who has them and what is free.
func (g *gpuNode) checkListed() {
	g.t.Helper()
	list := g.ask("device", "list", "gpu.nvidia.com")
	if list == "" {
		return
	}
	for device, holder := range map[string]string{"small": "/small/", "training": "/training-", "inference": "/inference-"} {
		if !strings.Contains(list, holder) {
			g.t.Errorf("device list names no holder of %s:\n%s", device, list)
		}
	}
	if !strings.Contains(list, "in parts: ") && strings.Contains(list, "/gpu-3 ") {
		g.t.Errorf("device list does not say that gpu-3 is divided:\n%s", list)
	}
	if text := g.ask("status"); !strings.Contains(text, "gpu.nvidia.com: 1 of 7") {
		g.t.Errorf("status counts the free GPUs otherwise:\n%s", text)
	}
	if text := g.ask("podresources", g.Namespace+"/small"); strings.Count(text, "gpu.nvidia.com=") != 1 {
		g.t.Errorf("podresources has not the device of small:\n%s", text)
	}
	if text := g.ask("pods", "-n", g.Namespace); strings.Count(text, "gpu.nvidia.com=") != 4 {
		g.t.Errorf("pods has not the devices of all:\n%s", text)
	}
}

// testFailure: the only GPU that is free fails, and the pod for it waits until it is back. The
// status of a pod whose GPU fails says so.
func (g *gpuNode) testFailure() {
	given := g.allocated()
	var used []string
	for _, devices := range given {
		used = append(used, devices...)
	}
	whole := []int{0, 1, 2, 4, 5, 6, 7}
	free := whole[slices.IndexFunc(whole, func(n int) bool {
		return !slices.Contains(used, fmt.Sprintf("gpu-%d", n))
	})]
	g.order(fmt.Sprintf("lose %d", free))
	tainted := func(want int) {
		harness.Eventually(g.t, fmt.Sprintf("gpu-%d has %d taints", free, want), func() error {
			all, err := g.devices()
			if got := all[fmt.Sprintf("gpu-%d", free)].Taints; err != nil || len(got) != want {
				return fmt.Errorf("it has %v, %v", got, err)
			}
			return nil
		})
	}
	tainted(1)
	g.Apply(`{apiVersion: v1, kind: Pod, metadata: {name: late}, spec: {
 terminationGracePeriodSeconds: 1, resourceClaims: [{name: gpu, resourceClaimTemplateName: one-gpu}],
 containers: [{name: main, image: "registry.test/work:1", resources: {claims: [{name: gpu}]}}]}}`)
	eventually(g.t, g.Cluster, "Unschedulable", "get", "pod", "late", "-o",
		"jsonpath={.status.conditions[?(@.type==\"PodScheduled\")].reason}")
	if text := g.ask("explain", g.Namespace+"/late"); text != "" && !strings.Contains(text, "No scheduler has bound pod") {
		g.t.Errorf("explain of a pod without a node: %s", text)
	}
	g.order(fmt.Sprintf("return %d", free))
	tainted(0)
	await(g.t, g.Cluster, g.Namespace, "late", runs)
	g.order(fmt.Sprintf("lose %d", free))
	eventually(g.t, g.Cluster, "Unhealthy", "get", "pod", "late", "-o",
		"jsonpath={.status.containerStatuses[0].allocatedResourcesStatus[0].resources[0].health}")
	g.order(fmt.Sprintf("return %d", free))
}

// TestSlicesOfAllMachines: the API server takes the slices of every simulated machine as they are,
// with whole GPUs that are shared and with claims that divide them.
func TestSlicesOfAllMachines(t *testing.T) {
	c := rig.Start(t)
	binary := harness.GPUPlugin(t)
	for machine, count := range map[string]int{"dgx1": 8, "dgx2": 16, "dgxa100": 8, "dgxb200": 8,
		"dgxh100": 8, "dgxh200": 8, "gb200": 4, "h100nvl8": 8, "pcie16": 16, "pcie8": 8} {
		t.Run(machine, func(t *testing.T) {
			t.Parallel() // no pod is scheduled
			agent := harness.New(t)
			g := &gpuNode{t: t, Cluster: c, Node: c.Join(agent, "slices-"+machine), cdi: t.TempDir(),
				binary: binary, orders: filepath.Join(agent.Dir, "orders.sock")}
			t.Cleanup(g.killDriver)
			g.Start()
			c.AwaitReady(g.Node.Name)
			g.startDriver("--mock="+machine, "--dra-mig=dynamic", "--dra-shares=4")
			divided := 0
			if !slices.Contains([]string{"dgx1", "dgx2", "pcie8", "pcie16"}, machine) {
				for n := range count {
					g.order(fmt.Sprintf("mig %d on", n))
				}
				count, divided = count*18, count
			}
			g.awaitDevices(count)
			g.awaitCounterSets(divided)
			log, err := os.ReadFile(filepath.Join(agent.Dir, "driver.log"))
			if err != nil || strings.Contains(string(log), "dropped fields") ||
				strings.Contains(string(log), "invalid") {
				t.Errorf("%v: the driver said\n%s", err, log)
			}
		})
	}
}

// awaitCounterSets waits for the counter sets of divided GPUs.
func (g *gpuNode) awaitCounterSets(count int) {
	g.t.Helper()
	harness.Eventually(g.t, fmt.Sprintf("%d counter sets are published", count), func() error {
		list, err := g.published()
		sets := 0
		for _, slice := range list {
			sets += len(slice.Spec.SharedCounters)
		}
		if err == nil && sets != count {
			err = fmt.Errorf("there are %d", sets)
		}
		return err
	})
}
