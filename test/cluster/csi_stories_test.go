package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/numalet/numalet/internal/lab/csidriver"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// csiCases are all cases.
func csiCases() []csiCase {
	const secrets = "nodeStageSecretRef: {name: csi, namespace: NS}, nodePublishSecretRef: {name: csi, namespace: NS}"
	return []csiCase{
		{name: "mount", object: "fsGroupPolicy: File", source: "fsType: ext4, volumeAttributes: {a: b}",
			driver: csidriver.Config{MaxVolumes: 11, Topology: map[string]string{"csi.test/rack": "r1"}},
			pod:    "securityContext: {fsGroup: 4712},"},
		{name: "block", volume: "volumeMode: Block,",
			mount: "volumeDevices: [{name: data, devicePath: /dev/xvda}]"},
		{name: "inline", object: "volumeLifecycleModes: [Ephemeral], fsGroupPolicy: File",
			inline: "volumeAttributes: {a: b}, nodePublishSecretRef: {name: csi}",
			pod:    "securityContext: {fsGroup: 4712},"},
		{name: "secrets", source: secrets, volume: "mountOptions: [noatime],"},
		{name: "tokens", object: `requiresRepublish: true, tokenRequests: [{audience: a}, {audience: ""}]`},
		{name: "hidden", object: "serviceAccountTokenInSecrets: true, tokenRequests: [{audience: a}]"},
		{name: "noattach", driver: csidriver.Config{NoAttach: true}},
		{name: "group", driver: csidriver.Config{MountGroup: true, NoAttach: true},
			pod: "securityContext: {fsGroup: 4712},", object: "fsGroupPolicy: File"},
		{name: "nostage", driver: csidriver.Config{NoStage: true, NoAttach: true}},
		{name: "pod", volume: "accessModes: [ReadWriteOncePod],"},
		{name: "readonly", mount: "volumeMounts: [{name: data, mountPath: /data, readOnly: true}]",
			source: "readOnly: true"},
		{name: "subpath", mount: "volumeMounts: [{name: data, mountPath: /data, subPath: a/b}]"},
		{name: "failures", before: func(_ *testing.T, s *csiStory) {
			s.d.Order(csidriver.Order{Method: "NodeStageVolume", Times: 1, Code: 13, Message: "no stage"},
				csidriver.Order{Method: "NodePublishVolume", Times: 1, Code: 8, Message: "no publish"},
				csidriver.Order{Method: "NodeUnpublishVolume", Times: 1, Code: 13, Message: "no unpublish"},
				csidriver.Order{Method: "NodeUnstageVolume", Times: 1, Code: 13, Message: "no unstage"})
		}},
		{name: "crash", before: func(t *testing.T, s *csiStory) {
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
// from the kubelet, and both leave the same files, events and objects.
func TestCSIStories(t *testing.T) {
	told := map[string]map[string]string{}
	for _, agent := range csiAgents(t) {
		told[agent] = map[string]string{}
		t.Run(agent, func(t *testing.T) {
			c := rig.Start(t)
			n := csiNodeOf(t, c, agent)
			for _, is := range csiCases() {
				if only := os.Getenv("NUMALET_CSI_CASE"); only != "" && !strings.Contains(","+only+",", ","+is.name+",") {
					continue
				}
				t.Run(is.name, func(t *testing.T) {
					is.source = strings.ReplaceAll(is.source, "namespace: NS", "namespace: "+c.Namespace)
					told[agent][is.name] = tellCSI(t, c, n, is)
					keepStory(t, agent+"-"+is.name, told[agent][is.name])
				})
			}
		})
	}
	if len(told) < 2 {
		return
	}
	for name, theirs := range told["kubelet"] {
		if diff := cmp.Diff(compared(theirs), compared(told["numalet"][name])); diff != "" {
			t.Errorf("%s: the kubelet (-) and numalet (+) differ:\n%s", name, diff)
		}
	}
}

// uncompared are lines that agents may differ in: what sidecars and others do, questions about
// capabilities, and these meant differences:
// the empty directory of a driver stays (kubelet), or goes; a driver that is gone keeps its annotation for
// a moment.
var uncompared = regexp.MustCompile(`^call (Controller|Get|Probe|NodeGet|Notify)|^event (attach|external)|` +
	`^event .* (Pulling|Pulled|Created|Started|Killing|MissingClusterDNS|WaitForFirstConsumer):|` +
	`^file ROOT/plugins/kubernetes.io(/csi(/[^/]*)?(/volumeDevices/(publish|staging))?)? d|` +
	`^file ROOT/pods/UID/(plugins|volumes|volumeDevices) d`)

// compared returns the lines of a story in which agents are to agree. Within a part of the story calls
// keep their order, without repetitions.
func compared(story string) (out []string) {
	var part []string
	end := func() {
		slices.SortStableFunc(part, func(a, b string) int {
			if strings.HasPrefix(a, "call ") && strings.HasPrefix(b, "call ") {
				return 0
			}
			return strings.Compare(a, b)
		})
		out, part = append(out, slices.Compact(part)...), nil
	}
	for line := range strings.Lines(story) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "== ") {
			end()
			out = append(out, line)
		} else if line != "" && !uncompared.MatchString(line) {
			part = append(part, line)
		}
	}
	end()
	return out
}

// keepStory writes a story to $NUMALET_CSI_OUT, if that is set, for those who want to read it.
func keepStory(t *testing.T, name, text string) {
	if dir := os.Getenv("NUMALET_CSI_OUT"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// csiAgents lists the agents of $NUMALET_CSI_AGENT; numalet,kubelet compares both. Without it the test
// is skipped: the sidecars take minutes to build.
func csiAgents(t *testing.T) []string {
	t.Helper()
	only := os.Getenv("NUMALET_CSI_AGENT")
	if only == "" {
		t.Skip("$NUMALET_CSI_AGENT is not set")
	}
	return strings.Split(only, ",")
}

// csiNodeOf starts a node of the agent, which syncs pods each second.
func csiNodeOf(t *testing.T, c rig.Cluster, agent string) rig.Node {
	t.Helper()
	is := harness.New(t)
	is.Settings["syncFrequency"] = "1s"
	is.Settings["nodeStatusUpdateFrequency"] = "1s"
	if agent == "kubelet" {
		rig.StockKubelet(t, is)
	} else {
		rig.Share(t, is.Root)
	}
	n := c.Join(is, agent)
	n.Start()
	c.AwaitReady(n.Name)
	return n
}
