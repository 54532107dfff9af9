package cluster_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/numalet/numalet/cmd/numalet-lab/csidriver"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// operationsOfPods is what the stock kubelet counts for a pod with a volume of a CSI driver and one with
// a block volume, which come and go, and names only for volumes that agents bring up to date as often
// as they like.
const operationsOfPods = `
storage_operation_duration_seconds operation_name="map_volume",status="success",volume_plugin="CSI" 1
storage_operation_duration_seconds operation_name="unmap_device",status="success",volume_plugin="CSI" 1
storage_operation_duration_seconds operation_name="unmap_volume",status="success",volume_plugin="CSI" 1
storage_operation_duration_seconds operation_name="unmount_device",status="success",volume_plugin="CSI" 1
storage_operation_duration_seconds operation_name="verify_controller_attached_volume",status="success",volume_plugin="CSI" 2
storage_operation_duration_seconds operation_name="verify_controller_attached_volume",status="success",volume_plugin="kubernetes.io/configmap"
storage_operation_duration_seconds operation_name="verify_controller_attached_volume",status="success",volume_plugin="kubernetes.io/empty-dir"
storage_operation_duration_seconds operation_name="verify_controller_attached_volume",status="success",volume_plugin="kubernetes.io/host-path"
storage_operation_duration_seconds operation_name="volume_apply_access_control",status="success",volume_plugin="CSI" 1
storage_operation_duration_seconds operation_name="volume_apply_access_control",status="success",volume_plugin="kubernetes.io/configmap"
storage_operation_duration_seconds operation_name="volume_apply_access_control",status="success",volume_plugin="kubernetes.io/empty-dir"
storage_operation_duration_seconds operation_name="volume_mount",status="success",volume_plugin="CSI" 1
storage_operation_duration_seconds operation_name="volume_mount",status="success",volume_plugin="kubernetes.io/configmap"
storage_operation_duration_seconds operation_name="volume_mount",status="success",volume_plugin="kubernetes.io/empty-dir"
storage_operation_duration_seconds operation_name="volume_mount",status="success",volume_plugin="kubernetes.io/host-path"
storage_operation_duration_seconds operation_name="volume_unmount",status="success",volume_plugin="CSI" 1
storage_operation_duration_seconds operation_name="volume_unmount",status="success",volume_plugin="kubernetes.io/configmap"
storage_operation_duration_seconds operation_name="volume_unmount",status="success",volume_plugin="kubernetes.io/empty-dir"
storage_operation_duration_seconds operation_name="volume_unmount",status="success",volume_plugin="kubernetes.io/host-path"
volume_operation_total_seconds operation_name="overall_volume_mount",plugin_name="CSI" 1
volume_operation_total_seconds operation_name="overall_volume_mount",plugin_name="kubernetes.io/configmap"
volume_operation_total_seconds operation_name="overall_volume_mount",plugin_name="kubernetes.io/empty-dir"
volume_operation_total_seconds operation_name="overall_volume_mount",plugin_name="kubernetes.io/host-path"
`

// TestOperationsOnVolumes: operations on volumes are counted under the kubelet's names. Set
// $NUMALET_CSI_AGENT to kubelet to see what that counts.
func TestOperationsOnVolumes(t *testing.T) {
	agents := []string{"numalet"}
	if only := os.Getenv("NUMALET_CSI_AGENT"); only != "" {
		agents = strings.Split(only, ",")
	}
	for _, agent := range agents {
		t.Run(agent, func(t *testing.T) {
			c := rig.Start(t)
			n := csiNodeOf(t, c, agent)
			files := &csiStory{Cluster: c, Node: n, csiCase: csiCase{name: "files",
				object: "fsGroupPolicy: File", driver: csidriver.Config{NoAttach: true}}}
			files.furnish(t)
			blocks := &csiStory{Cluster: c, Node: n, d: files.d, csiCase: csiCase{name: "blocks", driver: files.driver,
				volume: "volumeMode: Block,", mount: "volumeDevices: [{name: data, devicePath: /dev/xvda}]"}}
			blocks.id = blocks.addClaim(t, blocks.name)
			files.await(t, "the driver is registered", func() error {
				_, err := files.registered(t)
				return err
			})
			files.Apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: words}, data: {a: b}}`)
			files.Apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: files}, spec: {
 nodeName: %s, tolerations: [{operator: Exists}], terminationGracePeriodSeconds: 0,
 automountServiceAccountToken: false, securityContext: {fsGroup: 4712},
 volumes: [{name: data, persistentVolumeClaim: {claimName: files}}, {name: own, emptyDir: {}},
  {name: words, configMap: {name: words}}, {name: host, hostPath: {path: /tmp}}],
 containers: [{name: main, image: "registry.test/work:1", volumeMounts: [{name: data, mountPath: /data},
  {name: own, mountPath: /own}, {name: words, mountPath: /words}, {name: host, mountPath: /host}]}]}}`, n.Name))
			for _, s := range []*csiStory{files, blocks} {
				if s == blocks {
					s.begin(s.name)
				}
				pod := await(t, c, c.Namespace, s.name, runs)
				c.MustRun("delete", "pod", s.name, "--timeout=2m")
				s.ended(t, string(pod.UID))
			}
			var got []string
			harness.Eventually(t, "the ends of both volumes are counted", func() error {
				got = operationsIn(c.MustRun("get", "--raw", "/api/v1/nodes/"+n.Name+"/proxy/metrics"), files.d.Name)
				text := strings.Join(got, "\n")
				if !strings.Contains(text, "unmount_device") || !strings.Contains(text, "unmap_device") {
					return fmt.Errorf("counted are only\n%s", text)
				}
				return nil
			})
			want := strings.Split(strings.TrimSpace(operationsOfPods), "\n")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the stock kubelet (-) and %s (+) count:\n%s", agent, diff)
			}
		})
	}
}

// operationsIn returns the operations that were counted, with how often for volumes of the driver. Metrics
// of the pods that a cluster has besides are those of tokens.
func operationsIn(text, driver string) (out []string) {
	counted := regexp.MustCompile(`(?m)^(storage_operation_duration_seconds|volume_operation_total_seconds)_count\{(.*)\} (\d+)$`)
	for _, m := range counted.FindAllStringSubmatch(text, -1) {
		line := m[1] + " " + strings.ReplaceAll(strings.ReplaceAll(m[2], "kubernetes.io/csi:"+driver, "CSI"), `migrated="false",`, "")
		if strings.Contains(line, "projected") {
			continue
		}
		if strings.Contains(line, `"CSI"`) {
			line += " " + m[3]
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}
