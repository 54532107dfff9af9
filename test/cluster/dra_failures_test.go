package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// failingPod is a pod with a device of the driver NAME.example.com.
const failingPod = `{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: NAME.example.com}, spec: {
 selectors: [{cel: {expression: "device.driver == \"NAME.example.com\""}}]}}
---
{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: NAME}, spec: {spec: {devices: {
 requests: [{name: r, exactly: {deviceClassName: NAME.example.com}}]}}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: NAME}, spec: {nodeSelector: {kubernetes.io/hostname: NODE},
 automountServiceAccountToken: false, terminationGracePeriodSeconds: 1,
 resourceClaims: [{name: gpu, resourceClaimTemplateName: NAME}],
 containers: [{name: main, image: "registry.test/work:1", resources: {claims: [{name: gpu}]}}]}}
`

// failing is a pod with a device of its own driver, whose failures have a policy of their own.
type failing struct {
	*gpuNode
	name string
}

// TestFailedClaimDevices: of three drivers, each with a policy for its devices, a device fails that a pod
// has by claim. The driver's health stream says so: the statuses and events at the API server tell of it, a
// pod goes on, a container is restarted once, and a pod fails, after which its driver has nothing prepared.
func TestFailedClaimDevices(t *testing.T) {
	c := rig.Start(t)
	cdi := t.TempDir()
	agent := harness.NewWith(t, crisim.Config{CDIDirs: []string{cdi}})
	agent.Args = append(agent.Args, "--device-failure-policy=event.example.com=event:0s,"+
		"restart.example.com=restart-container:0s,fail.example.com=fail-pod:0s")
	n := c.Join(agent, "failing-claims")
	n.Start()
	c.AwaitReady(n.Name)
	binary := harness.GPUPlugin(t)
	t.Cleanup(func() {
		if text, err := os.ReadFile(filepath.Join(agent.Dir, "driver.log")); t.Failed() {
			t.Logf("%v: the drivers said\n%s", err, text)
		}
	})
	all := map[string]failing{}
	for _, name := range []string{"event", "restart", "fail"} {
		f := failing{&gpuNode{t: t, Cluster: c, Node: n, cdi: cdi, binary: binary,
			orders: filepath.Join(agent.Dir, name+".sock")}, name}
		all[name] = f
		t.Cleanup(f.killDriver)
		f.startDriver("--mock=pcie8", "--dra-driver="+name+".example.com")
		c.Apply(strings.NewReplacer("NAME", name, "NODE", n.Name).Replace(failingPod))
		t.Cleanup(func() { _, _ = c.Run("delete", "deviceclass", name+".example.com") })
	}
	for name, f := range all {
		await(t, c, c.Namespace, name, runs)
		f.fails(true)
	}

	const since = "has been unhealthy for"
	all["event"].awaitEvent("DeviceUnhealthy", "gpu-")
	all["event"].awaitEvent("DeviceFailed", since, "container main goes on")
	all["event"].awaitHealth("Unhealthy")

	all["restart"].awaitEvent("DeviceFailed", since, "container main is restarted once")
	await(t, c, c.Namespace, "restart", func(p *v1.Pod) bool { return runs(p) && restarts(p) == 1 })
	all["restart"].awaitHealth("Unhealthy") // it keeps its device

	all["fail"].awaitEvent("DeviceFailed", since, "the pod is ended and fails")
	failed := await(t, c, c.Namespace, "fail", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed })
	if failed.Status.Reason != "DeviceFailed" || !strings.Contains(failed.Status.Message, since) ||
		!disrupted(failed) {
		t.Errorf("the failed pod says %s: %s, %+v", failed.Status.Reason, failed.Status.Message,
			failed.Status.Conditions)
	}
	if found := all["fail"].ownSpecs(); len(found) > 0 {
		t.Errorf("the failed pod is final, and its driver has %q prepared", found)
	}

	for _, name := range []string{"event", "restart"} {
		all[name].fails(false)
		all[name].awaitEvent("DeviceHealthy", "gpu-")
		all[name].awaitHealth("Healthy")
	}
	if p, err := get(t, c, c.Namespace, "event"); err != nil || restarts(p) != 0 || !runs(p) {
		t.Errorf("%v: the pod that goes on is %+v", err, p.Status)
	}
	if p, err := get(t, c, c.Namespace, "restart"); err != nil || restarts(p) != 1 {
		t.Errorf("%v: the restarted pod is %+v", err, p.Status)
	}
}

func disrupted(p *v1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue {
			return true
		}
	}
	return false
}

// fails has the device of the pod fall off the bus, or return.
func (f failing) fails(is bool) {
	f.t.Helper()
	word := "return"
	if is {
		word = "lose"
	}
	device := f.allocated()[f.name]
	if len(device) != 1 {
		f.t.Fatalf("pod %s has %q", f.name, device)
	}
	f.order(word + " " + strings.TrimPrefix(device[0], "gpu-"))
}

// awaitEvent waits for an event of the pod whose message has these parts.
func (f failing) awaitEvent(reason string, parts ...string) {
	f.t.Helper()
	harness.Eventually(f.t, fmt.Sprintf("pod %s has the event %s with %q", f.name, reason, parts), func() error {
		said, err := f.Run("get", "events", "--field-selector=involvedObject.name="+f.name+",reason="+reason,
			"-o", `jsonpath={.items[*].message}`)
		for _, part := range parts {
			if err == nil && !strings.Contains(said, part) {
				err = fmt.Errorf("it says %q", said)
			}
		}
		return err
	})
}

// awaitHealth waits for what the status says of the pod's device.
func (f failing) awaitHealth(want string) {
	f.t.Helper()
	eventually(f.t, f.Cluster, "claim:gpu "+want, "get", "pod", f.name, "-o", "jsonpath="+
		"{.status.containerStatuses[0].allocatedResourcesStatus[0].name} "+
		"{.status.containerStatuses[0].allocatedResourcesStatus[0].resources[0].health}")
}

// ownSpecs returns the CDI specs of claims of this driver.
func (f failing) ownSpecs() (out []string) {
	for _, path := range f.specs() {
		if strings.Contains(filepath.Base(path), f.name+".example.com") {
			out = append(out, path)
		}
	}
	return out
}
