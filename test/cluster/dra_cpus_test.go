package cluster_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
	"github.com/numalet/numalet/topology/topologytest"
)

// cpuObjects are a class of dra-driver-cpu's devices and a template for three CPUs of one.
const cpuObjects = `{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: dra.cpu}, spec: {
 selectors: [{cel: {expression: "device.driver == \"dra.cpu\""}}]}}
---
{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: three}, spec: {spec: {devices: {
 requests: [{name: cpus, exactly: {deviceClassName: dra.cpu, capacity: {requests: {dra.cpu/cpu: "3"}},
  selectors: [{cel: {expression: "device.attributes[\"resource.kubernetes.io\"].numaNode == 1"}}]}}]}}}}
`

// cpuPod is a pod that gets CPUs by its request or by a claim.
func cpuPod(name, node, resources, claims string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {%s
 nodeSelector: {kubernetes.io/hostname: %s}, automountServiceAccountToken: false,
 terminationGracePeriodSeconds: 1, containers: [{name: main, image: "registry.test/work:1",
 resources: {%s}}]}}`, name, claims, node, resources)
}

// TestCPUsByClaim: the agent is a driver of CPUs. A scheduler allocates some of what it publishes, the
// agent chooses which, no CPU has two owners whichever way pods ask, what is published is what
// requests leave, over a restart of the agent, and in the end all is free.
func TestCPUsByClaim(t *testing.T) {
	c := rig.Start(t)
	agent := harness.New(t)
	n := c.Join(agent, "cpus-by-claim")
	agent.Args = append(agent.Args, "--dra-cpu")
	n.Start()
	c.AwaitReady(n.Name)
	published := func(want func(int64) bool) (out int64) {
		harness.Eventually(t, "the CPUs of node 1 are published", func() error {
			list, err := c.Client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{
				FieldSelector: "spec.driver=dra.cpu,spec.nodeName=" + n.Name})
			if err != nil || len(list.Items) == 0 {
				return fmt.Errorf("%d slices, %w", len(list.Items), err)
			}
			for _, d := range list.Items[0].Spec.Devices {
				if d.Name == "cpudevnuma001" {
					capacity := d.Capacity["dra.cpu/cpu"]
					out = capacity.Value.Value()
				}
			}
			if !want(out) {
				return fmt.Errorf("there are %d", out)
			}
			return nil
		})
		return out
	}
	all := published(func(n int64) bool { return n > 8 })
	c.Apply(cpuObjects)
	t.Cleanup(func() { _, _ = c.Run("delete", "deviceclass", "dra.cpu") })
	ref := `resourceClaims: [{name: cpus, resourceClaimTemplateName: three}],`
	c.Apply(cpuPod("claimed", n.Name, `claims: [{name: cpus}]`, ref))
	c.Apply(cpuPod("requested", n.Name, `limits: {cpu: 2, memory: 64Mi}`, ""))
	c.Apply(cpuPod("mirrored", n.Name, `limits: {cpu: 3, memory: 64Mi}, claims: [{name: cpus}]`, ref))
	names := map[string]int{"claimed": 3, "requested": 2, "mirrored": 3}
	for name := range names {
		await(t, c, c.Namespace, name, runs)
	}
	owned := func() map[string]cpuset.CPUSet {
		t.Helper()
		state, err := agent.Assigned()
		if err != nil {
			t.Fatal(err)
		}
		out, taken := map[string]cpuset.CPUSet{}, cpuset.New()
		for _, pod := range state.Pods {
			if _, its := names[pod.Name]; !its {
				continue
			}
			cpus := pod.Containers["main"].CPUs()
			if both := taken.Intersection(cpus); !both.IsEmpty() || cpus.Size() != names[pod.Name] {
				t.Errorf("pod %s has CPUs %s, of which %s are another's", pod.Name, cpus, both)
			}
			taken, out[pod.Name] = taken.Union(cpus), cpus
		}
		return out
	}
	before := owned()
	machine := topologytest.Fixture(t, "playground")
	on := machine.CPUsOfNode(1)
	for _, name := range []string{"claimed", "mirrored"} {
		if cpus := before[name]; !cpus.IsSubsetOf(on) {
			t.Errorf("pod %s has CPUs %s, and those of NUMA node 1 are %s", name, cpus, on)
		}
	}
	onNode := int64(before["requested"].Intersection(on).Size())
	published(func(n int64) bool { return n == all-onNode })
	n.Kill()
	n.Start()
	published(func(n int64) bool { return n == all-onNode })
	if after := owned(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("after a restart %v, before it %v", after, before)
	}
	c.MustRun("delete", "pod", "--all", "--timeout=1m")
	published(func(n int64) bool { return n == all })
	harness.Eventually(t, "all CPUs are free", func() error {
		if left := owned(); len(left) > 0 {
			return fmt.Errorf("left are %v", left)
		}
		return nil
	})
}
