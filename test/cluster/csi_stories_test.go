package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/numalet/numalet/cmd/numalet-lab/csidriver"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// csiCases are all cases.
func csiCases() []csiCase {
	const secrets = "nodeStageSecretRef: {name: csi, namespace: NS}, nodePublishSecretRef: {name: csi-publish, namespace: NS}"
	return []csiCase{
		{name: "mount", object: "fsGroupPolicy: File", source: "fsType: ext4, volumeAttributes: {a: b}",
			driver: csidriver.Config{MaxVolumes: 11, Topology: map[string]string{"csi.test/rack": "r1"}},
			pod:    "securityContext: {fsGroup: 4712},"},
		{name: "block", volume: "volumeMode: Block,",
			mount: "volumeDevices: [{name: data, devicePath: /dev/xvda}]"},
		{name: "inline", object: "volumeLifecycleModes: [Ephemeral], fsGroupPolicy: File",
			inline: "volumeAttributes: {a: b}, nodePublishSecretRef: {name: csi}",
			pod:    "securityContext: {fsGroup: 4712},"},
		{name: "reads", object: "volumeLifecycleModes: [Ephemeral]",
			inline: "readOnly: true, fsType: ext4, volumeAttributes: {a: b}"},
		{name: "secrets", source: secrets, volume: "mountOptions: [noatime],"},
		{name: "tokens", object: `requiresRepublish: true, tokenRequests: [{audience: a}, {audience: ""}]`},
		{name: "hidden", object: "serviceAccountTokenInSecrets: true, tokenRequests: [{audience: a}]"},
		{name: "exclusive", mount: "volumeMounts: [{name: data, mountPath: /data}], " +
			"resources: {limits: {cpu: 1, memory: 64Mi}}"},
		{name: "noattach", driver: csidriver.Config{NoAttach: true}},
		{name: "group", driver: csidriver.Config{MountGroup: true, NoAttach: true},
			pod: "securityContext: {fsGroup: 4712},", object: "fsGroupPolicy: File"},
		{name: "nostage", driver: csidriver.Config{NoStage: true, NoAttach: true}},
		{name: "pod", volume: "accessModes: [ReadWriteOncePod],"},
		{name: "readonly", mount: "volumeMounts: [{name: data, mountPath: /data, readOnly: true}]",
			source: "readOnly: true"},
		{name: "reader", claim: "readOnly: true"},
		{name: "subpath", mount: "volumeMounts: [{name: data, mountPath: /data, subPath: a/b}]"},
		{name: "failures", before: func(_ *testing.T, s *csiStory) {
			s.d.Order(csidriver.Order{Method: "NodeStageVolume", Times: 1, Code: 13, Message: "no stage"},
				csidriver.Order{Method: "NodePublishVolume", Times: 1, Code: 8, Message: "no publish"},
				csidriver.Order{Method: "NodeUnpublishVolume", Times: 1, Code: 13, Message: "no unpublish"},
				csidriver.Order{Method: "NodeUnstageVolume", Times: 1, Code: 13, Message: "no unstage"})
		}},
		{name: "crash", crashes: 1, before: func(t *testing.T, s *csiStory) {
			s.d.Order(csidriver.Order{Method: "NodeStageVolume", Times: 1, CrashAfter: true})
			go func() {
				<-s.d.Process.Exited()
				if t.Context().Err() == nil {
					_ = s.d.Process.Start()
				}
			}()
		}},
		// ext4 grows while it is mounted only with CAP_SYS_RESOURCE, which test machines may lack.
		{name: "resize", object: "fsGroupPolicy: File", source: "fsType: xfs", bytes: 512 << 20, before: func(_ *testing.T, s *csiStory) {
			s.d.Sidecar("csi-resizer")
			s.Apply(fmt.Sprintf(`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: %s},
 provisioner: %s, allowVolumeExpansion: true}`, s.volumeName(), s.d.Name))
		}, during: func(t *testing.T, s *csiStory) {
			defer s.MustRun("delete", "storageclass", s.volumeName())
			s.MustRun("patch", "pvc", s.name, "-p", `{"spec":{"resources":{"requests":{"storage":"1Gi"}}}}`)
			eventually(t, s.Cluster, "1Gi", "get", "pvc", s.name, "-o", "jsonpath={.status.capacity.storage}")
		}},
	}
}

// TestCSIStories: pods with volumes of CSI drivers. The drivers get the same calls from numalet as
// from the kubelet, and both leave the same files, events, statuses and objects. $NUMALET_CSI_AGENT has
// the agents, $NUMALET_CSI_CASE the cases; all without them.
func TestCSIStories(t *testing.T) {
	agents := listOf("NUMALET_CSI_AGENT", "numalet", "kubelet")
	reported := map[string]map[string]string{}
	for _, agent := range agents {
		reported[agent] = map[string]string{}
	}
	t.Run("of", func(t *testing.T) {
		for _, agent := range agents {
			t.Run(agent, func(t *testing.T) {
				t.Parallel()
				tellAll(t, agent, reported[agent])
			})
		}
	})
	if len(agents) == 2 && !t.Failed() {
		compareStories(t, reported["kubelet"], reported["numalet"])
	}
}

// tellAll plays the cases on one node of an agent.
func tellAll(t *testing.T, agent string, reported map[string]string) {
	c := rig.Start(t)
	n := csiNodeOf(t, c, agent)
	var names []string
	for _, is := range csiCases() {
		names = append(names, is.name)
	}
	chosen := listOf("NUMALET_CSI_CASE", names...)
	for _, is := range csiCases() {
		if !slices.Contains(chosen, is.name) {
			continue
		}
		t.Run(is.name, func(t *testing.T) {
			is.source = strings.ReplaceAll(is.source, "namespace: NS", "namespace: "+c.Namespace)
			reported[is.name] = tellCSI(t, c, n, is)
			keepStory(t, agent+"-"+is.name, reported[is.name])
		})
	}
}

// listOf returns the words of a variable, which commas part, or all.
func listOf(variable string, all ...string) []string {
	if text := os.Getenv(variable); text != "" {
		return strings.Split(text, ",")
	}
	return all
}

// keepStory writes a story to $NUMALET_CSI_OUT, if that is set, for those who want to read it.
func keepStory(t *testing.T, name, text string) {
	if dir := os.Getenv("NUMALET_CSI_OUT"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// csiNodeOf starts a node of the agent, which syncs pods each second.
func csiNodeOf(t *testing.T, c rig.Cluster, agent string) rig.Node {
	t.Helper()
	is := harness.New(t)
	is.Settings["syncFrequency"] = "1s"
	is.Settings["cpuManagerPolicy"], is.Settings["reservedSystemCPUs"] = "static", "0"
	is.Settings["nodeStatusUpdateFrequency"] = "1s"
	if agent == "kubelet" {
		rig.StockKubelet(t, is)
	} else {
		rig.Share(t, is.Root)
	}
	n := c.Join(is, "csi-"+agent)
	n.Start()
	c.AwaitReady(n.Name)
	return n
}
