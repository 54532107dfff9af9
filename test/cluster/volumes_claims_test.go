package cluster_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// claim creates an unbound claim; more adds to its spec.
func claim(c rig.Cluster, name, more string) {
	c.Apply(fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: %s}, spec: {
 %s accessModes: [ReadWriteOncePod], storageClassName: "", volumeName: %s,
 resources: {requests: {storage: 1Mi}}}}`, name, more, c.Namespace+"-"+name))
}

// bind creates a persistent volume with that source, and binds the claim to it as the controller
// does.
func bind(c rig.Cluster, name, source string) {
	uid := c.MustRun("get", "pvc", name, "-o", "jsonpath={.metadata.uid}")
	volume := c.Namespace + "-" + name
	c.Apply(fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: %s,
  annotations: {pv.beta.kubernetes.io/gid: "4713"}}, spec: {
 accessModes: [ReadWriteOncePod], capacity: {storage: 1Mi}, storageClassName: "",
 persistentVolumeReclaimPolicy: Retain, %s,
 nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [
  {key: kubernetes.io/os, operator: In, values: [linux]}]}]}},
 claimRef: {apiVersion: v1, kind: PersistentVolumeClaim, namespace: %s, name: %s, uid: %s}}}`,
		volume, source, c.Namespace, name, strings.TrimSpace(uid)))
	c.MustRun("patch", "pvc", name, "--subresource=status", "--patch",
		`{"status": {"phase": "Bound", "accessModes": ["ReadWriteOncePod"],
  "capacity": {"storage": "1Mi"}}}`)
}

// claimant returns a pod that uses the claim.
func claimant(n rig.Node, name, claim string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {
 nodeName: %s, tolerations: [{operator: Exists}], terminationGracePeriodSeconds: 0,
 automountServiceAccountToken: false, securityContext: {fsGroup: 4712},
 volumes: [{name: data, persistentVolumeClaim: {claimName: %s}}],
 containers: [{name: main, image: "registry.test/work:1",
  volumeMounts: [{name: data, mountPath: /data}]}]}}`, name, n.Name, claim)
}

// awaitFailedMount waits for an event of the pod with this text.
func awaitFailedMount(t *testing.T, c rig.Cluster, pod, want string) {
	t.Helper()
	harness.Eventually(t, "an event says "+want, func() error {
		text, err := c.Run("get", "events", "-o", "jsonpath={.items[*].message}",
			"--field-selector=reason=FailedMount,involvedObject.name="+pod)
		if err == nil && !strings.Contains(text, want) {
			err = fmt.Errorf("they say %s", text)
		}
		return err
	})
}

// awaitRoom waits until the node's summary has the space of the pod's volume data with its claim.
func awaitRoom(t *testing.T, c rig.Cluster, n rig.Node, pod *v1.Pod, claim string) {
	t.Helper()
	harness.Eventually(t, "the summary has the claim's room", func() error {
		text, err := c.Run("get", "--raw", "/api/v1/nodes/"+n.Name+"/proxy/stats/summary")
		if err != nil {
			return err
		}
		var summary statsapi.Summary
		if err := json.Unmarshal([]byte(text), &summary); err != nil {
			return err
		}
		want := statsapi.PVCReference{Name: claim, Namespace: pod.Namespace}
		for _, p := range summary.Pods {
			for _, v := range p.VolumeStats {
				if p.PodRef.UID == string(pod.UID) && v.Name == "data" && v.PVCRef != nil &&
					*v.PVCRef == want && *v.CapacityBytes > 0 {
					return nil
				}
			}
		}
		return fmt.Errorf("it is %s", text)
	})
}

// isGiven checks that a file belongs to fsGroup.
func isGiven(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil || info.Sys().(*syscall.Stat_t).Gid != 4712 || info.Mode() != 0o660 {
		t.Errorf("the file is %v, %v; want it fsGroup's", info, err)
	}
}

// TestClaims: a pod waits until its claim is bound and then has a mount of its own, which stays
// while no agent runs. With ReadWriteOncePod another pod cannot have the volume until the first is
// gone. The volume's files outlive the pods.
func TestClaims(t *testing.T) {
	onEach(t, func(t *testing.T, c rig.Cluster, n rig.Node) {
		dir := filepath.Join(t.TempDir(), "disk")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte("kept"), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			c.MustRun("delete", "pv", "--ignore-not-found", c.Namespace+"-disk", "--wait=false")
		})
		claim(c, "disk", "")
		c.Apply(claimant(n, "first", "disk"))
		awaitFailedMount(t, c, "first", "unmounted volumes=[data], unattached volumes=[], failed to "+
			"process volumes=[data]: error processing PVC "+c.Namespace+"/disk: PVC is not bound")
		bind(c, "disk", fmt.Sprintf("local: {path: %q}", dir))
		first := await(t, c, c.Namespace, "first", runs)
		volume := "kubernetes.io~local-volume/" + c.Namespace + "-disk"
		sees := func(p *v1.Pod) {
			t.Helper()
			if got, err := fileIn(n, p, volume+"/file"); got != "kept" || err != nil {
				t.Errorf("the pod's volume has %q, %v", got, err)
			}
		}
		sees(first)
		container, _ := n.Runtime.State().Container("first", "main")
		at := filepath.Join(n.Root, "pods", string(first.UID), "volumes", volume)
		mounted := ""
		for _, m := range container.Config.GetMounts() {
			if m.GetContainerPath() == "/data" {
				mounted = m.GetHostPath()
			}
		}
		if mounted != at {
			t.Errorf("the container has %s, want %s", mounted, at)
		}
		groups := container.Config.GetLinux().GetSecurityContext().GetSupplementalGroups()
		if !slices.Contains(groups, 4712) || !slices.Contains(groups, 4713) {
			t.Errorf("the container has groups %v", groups)
		}
		isGiven(t, filepath.Join(dir, "file"))
		c.Apply(claimant(n, "second", "disk"))
		awaitFailedMount(t, c, "second", "volume uses the ReadWriteOncePod access mode and is "+
			"already in use by another pod")
		if n.Name != "kubelet" { // the kubelet does not always clean up in time
			n.Kill()
			n.Settings["volumeStatsAggPeriod"] = "1s"
			n.Start()
			c.AwaitReady(n.Name)
			awaitRoom(t, c, n, first, "disk")
		}
		sees(first)
		c.MustRun("delete", "pod", "first", "--timeout=1m")
		second := await(t, c, c.Namespace, "second", runs)
		sees(second)
		c.MustRun("delete", "pod", "second", "--timeout=1m")
		harness.Eventually(t, "nothing of the pods is mounted", func() error {
			mounts, err := os.ReadFile("/proc/self/mountinfo")
			if err == nil && strings.Contains(string(mounts), n.Root+"/pods/") {
				err = fmt.Errorf("there is %s", mounts)
			}
			return err
		})
		if _, err := os.Stat(filepath.Join(dir, "file")); err != nil {
			t.Errorf("the volume's file went with its pods: %v", err)
		}
	})
}
