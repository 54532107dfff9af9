package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// need is something without which a pod cannot start.
type need struct {
	name string
	spec string // of the pod; the container's field comes before it
	made func(c rig.Cluster)
	// reason and words are of the kubelet's event while it is missing.
	reason, words string
}

const fourGPUs = "resources: {limits: {cpu: 1, memory: 16Mi, example.com/gpu: 4}}"

// needing returns a pod of one container with these fields, and with volumes.
func needing(n rig.Node, name, container, volumes string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {
 nodeName: %s, tolerations: [{operator: Exists}], terminationGracePeriodSeconds: 0,
 automountServiceAccountToken: false, volumes: [%s],
 containers: [{name: main, image: "registry.test/work:1", %s}]}}`, name, n.Name, volumes, container)
}

// mounting has the fields of a container that mounts the volume v.
const mounting = "volumeMounts: [{name: v, mountPath: /v}]"

// needs returns things that may be missing; made creates them, nil: nothing can.
func needs(namespace string) []need {
	object := func(kind, name, data string) func(rig.Cluster) {
		return func(c rig.Cluster) {
			c.Apply(fmt.Sprintf(`{apiVersion: v1, kind: %s, metadata: {name: %s}, %s}`, kind, name, data))
		}
	}
	processing := "failed to process volumes=[v]: error processing PVC " + namespace + "/"
	return []need{
		{"secret", "secret: {secretName: s1}", object("Secret", "s1", "stringData: {k: x}"),
			"FailedMount", `MountVolume.SetUp failed for volume "v" : secret "s1" not found`},
		{"key", "secret: {secretName: s1, items: [{key: none, path: p}]}",
			object("Secret", "s1", "stringData: {k: x, none: x}"), "FailedMount",
			`MountVolume.SetUp failed for volume "v" : references non-existent secret key: none`},
		{"projected", "projected: {sources: [{configMap: {name: c1}}]}",
			object("ConfigMap", "c1", "data: {k: x}"), "FailedMount",
			`MountVolume.SetUp failed for volume "v" : configmap "c1" not found`},
		{"env", "env: [{name: X, valueFrom: {secretKeyRef: {name: s2, key: k}}}]",
			object("Secret", "s2", "stringData: {k: x}"), "Failed", `Error: secret "s2" not found`},
		{"envfrom", "envFrom: [{configMapRef: {name: c2}}]", object("ConfigMap", "c2", "data: {k: x}"),
			"Failed", `Error: configmap "c2" not found`},
		{"claim", "persistentVolumeClaim: {claimName: p1}", func(c rig.Cluster) {
			claim(c, "p1", "")
			bind(c, "p1", "hostPath: {path: /}")
		}, "FailedMount", processing + "p1: failed to fetch PVC from API server: " +
			`persistentvolumeclaims "p1" not found`},
		{"bound", "persistentVolumeClaim: {claimName: p2}",
			func(c rig.Cluster) { bind(c, "p2", "hostPath: {path: /}") },
			"FailedMount", processing + "p2: PVC is not bound"},
		{"csi", "persistentVolumeClaim: {claimName: p3}", nil, "FailedMount",
			fmt.Sprintf("MountVolume.MountDevice failed for volume %q : kubernetes.io/csi: "+
				"attacher.MountDevice failed to create newCsiDriverClient: driver name test not found in "+
				"the list of registered CSI drivers", namespace+"-p3")},
	}
}

func (d need) pod(n rig.Node, name, resources string) string {
	if strings.HasPrefix(d.spec, "env") {
		return needing(n, name, d.spec+", "+resources, "")
	}
	return needing(n, name, mounting+", "+resources, "{name: v, "+d.spec+"}")
}

func waitsForObjects(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodPending && p.Status.Reason == "WaitingForObjects"
}

func hasFailed(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed }

// awaitEvent waits for an event about the pod with that reason and beginning.
func awaitEvent(t *testing.T, c rig.Cluster, pod, reason, words string) {
	t.Helper()
	harness.Eventually(t, "an event says "+words, func() error {
		text, err := c.Run("get", "events", "-o", `jsonpath={.items[*].message}`,
			"--field-selector=reason="+reason+",involvedObject.name="+pod)
		if err == nil && !strings.Contains(text, words) {
			err = fmt.Errorf("they say %s", text)
		}
		return err
	})
}

// TestNeeds: while something is missing, a pod with devices holds none of them: the next pod gets
// all of them and runs. Once the missing thing and the devices are there, the pod starts, and keeps
// running when the thing is removed, across a restart of the agent too. If nothing comes, the pod
// is rejected after the wait. A pod without devices waits as under a kubelet.
func TestNeeds(t *testing.T) {
	c := rig.Start(t)
	agent := harness.New(t)
	agent.Plugin("example.com/gpu", "--devices=4")
	agent.Args = append(agent.Args, "--device-admission-wait=10m")
	n := c.Join(agent, "needs")
	n.Start()
	eventually(t, c, "4", "get", "node", n.Name,
		"--output=jsonpath={.status.allocatable.example\\.com/gpu}")
	claim(c, "p2", "")
	claim(c, "p3", "")
	bind(c, "p3", "csi: {driver: test, volumeHandle: h}")
	t.Cleanup(func() {
		for _, name := range []string{"p1", "p2", "p3"} {
			c.MustRun("delete", "pv", "--ignore-not-found", c.Namespace+"-"+name, "--wait=false")
		}
	})
	remove := func(name string) { c.MustRun("delete", "pod", name, "--timeout=1m") }
	for _, d := range needs(c.Namespace) {
		c.Apply(d.pod(n, d.name, fourGPUs))
		await(t, c, c.Namespace, d.name, waitsForObjects)
		awaitEvent(t, c, d.name, d.reason, d.words)
		next := "next-" + d.name
		c.Apply(needing(n, next, fourGPUs, ""))
		await(t, c, c.Namespace, next, runs)
		await(t, c, c.Namespace, d.name, waitsForObjects)
		remove(next)
		if d.made != nil {
			d.made(c)
			await(t, c, c.Namespace, d.name, runs)
		}
		if d.name == "envfrom" {
			staysWithoutNeeds(t, c, n, d.name)
		}
		remove(d.name)
	}
	t.Run("Ordinary", func(t *testing.T) { needsOfOrdinary(t, c, n) })
	t.Run("End", func(t *testing.T) {
		n.Stop()
		agent.Args = append(agent.Args, "--device-admission-wait=3s")
		n.Start()
		needsAtTheEnd(t, c, n)
	})
}

// staysWithoutNeeds: the pod keeps running when what it needed is removed and the agent restarts.
func staysWithoutNeeds(t *testing.T, c rig.Cluster, n rig.Node, name string) {
	t.Helper()
	before := await(t, c, c.Namespace, name, runs).Status.ContainerStatuses[0].ContainerID
	c.MustRun("delete", "configmap", "c2")
	n.Stop()
	n.Start()
	c.Apply(needing(n, "after", "resources: {}", ""))
	await(t, c, c.Namespace, "after", runs)
	after := await(t, c, c.Namespace, name, runs).Status.ContainerStatuses[0].ContainerID
	if before != after {
		t.Errorf("the container was %s and is %s", before, after)
	}
}

// needsOfOrdinary tests pods without devices or exclusive CPUs.
func needsOfOrdinary(t *testing.T, c rig.Cluster, n rig.Node) {
	c.MustRun("delete", "secret", "s1", "s2")
	all := needs(c.Namespace)
	for _, d := range []need{all[0], all[3]} {
		name := "plain-" + d.name
		c.Apply(d.pod(n, name, "resources: {limits: {cpu: 100m, memory: 16Mi}}"))
		awaitEvent(t, c, name, d.reason, strings.TrimPrefix(d.words, "Error: "))
		why := map[string]string{"secret": "ContainerCreating", "env": "CreateContainerConfigError"}
		p := await(t, c, c.Namespace, name, func(p *v1.Pod) bool {
			if len(p.Status.ContainerStatuses) == 0 {
				return false
			}
			w := p.Status.ContainerStatuses[0].State.Waiting
			return p.Status.Phase == v1.PodPending && w != nil && w.Reason == why[d.name]
		})
		if waitsForObjects(p) {
			t.Errorf("%s waits with %s", name, p.Status.Reason)
		}
		d.made(c)
		await(t, c, c.Namespace, name, runs)
	}
}

// needsAtTheEnd tests pods whose missing objects never come.
func needsAtTheEnd(t *testing.T, c rig.Cluster, n rig.Node) {
	c.MustRun("delete", "secret", "s1")
	d := needs(c.Namespace)[0]
	c.Apply(d.pod(n, "never", fourGPUs))
	p := await(t, c, c.Namespace, "never", hasFailed)
	if p.Status.Reason != "ObjectsMissing" || p.Status.Message != "Pod was rejected: "+d.words+
		"; the pod has waited for that for 3s" {
		t.Errorf("it was rejected with %s: %s", p.Status.Reason, p.Status.Message)
	}
	awaitEvent(t, c, "never", "WaitingForObjects", d.words)
	awaitEvent(t, c, "never", "ObjectsMissing", d.words)
}
