package guest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
	"github.com/numalet/numalet/test/harness"
)

// TestQuotaNode: on ext4 and xfs with project quotas the kernel counts what is in the volumes of a pod with
// a user namespace, also after the agent was killed, and what is in a file that was deleted and is open.
// Volumes of another pod, and all of them without the feature gate, are looked through as ever.
func TestQuotaNode(t *testing.T) {
	d := newRuntime(t)
	all := filepath.SplitList(os.Getenv("NUMALET_PRJQUOTA"))
	if len(all) != 2 {
		t.Fatalf("the filesystems that count projects are %q, want ext4 and xfs", all)
	}
	for _, at := range all {
		t.Run(filepath.Base(at), func(t *testing.T) { testQuotaNode(t, d.Endpoint(), at) })
	}
}

func testQuotaNode(t *testing.T, endpoint, at string) {
	n := harness.NewOn(t, endpoint)
	n.Root = filepath.Join(at, "root")
	n.Args = []string{"--root-dir=" + n.Root, "--hostname-override=node", "-v=4"}
	for name, value := range map[string]any{
		"cpuManagerPolicy": "none", "topologyManagerPolicy": "none", "volumeStatsAggPeriod": "2s",
		"cgroupsPerQOS": true, // what a pod uses is its cgroup's
		"evictionHard":  map[string]string{"memory.available": "1Mi"},
		"featureGates":  map[string]bool{"LocalStorageCapacityIsolationFSQuotaMonitoring": true},
	} {
		n.Settings[name] = value
	}
	n.Start()
	const mib = 1 << 20
	for name, users := range map[string]string{"own": "hostUsers: false", "shared": "hostNetwork: true"} {
		n.Pod(name, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {%s,
  volumes: [{name: cache, emptyDir: {}}],
  containers: [{name: main, image: %q, args: [--print], volumeMounts: [{name: cache, mountPath: /cache}]}]}}`,
			name, users, containerd.WorkImage))
	}
	for _, name := range []string{"own", "shared"} {
		p := n.AwaitPhase(name+"-node", v1.PodRunning)
		dir := filepath.Join(n.Root, "pods", string(p.UID), "volumes/kubernetes.io~empty-dir/cache")
		writeOut(t, filepath.Join(dir, "below", "file"), 2*mib)
		deleted := filepath.Join(dir, "deleted")
		open := writeOut(t, deleted, 4*mib)
		if err := os.Remove(deleted); err != nil {
			t.Fatal(err)
		}
		defer open.Close()
	}
	check := func(when, name string, least uint64) {
		t.Helper()
		n.Eventually(when+" the summary has what is in the volume of "+name, func() error {
			used, err := volumeUses(n, name+"-node")
			if err == nil && (used < least || used > least+mib) {
				err = fmt.Errorf("%d bytes", used)
			}
			if err == nil {
				row(t, "%s %s: %d KiB", when, name, used>>10)
			}
			return err
		})
	}
	check("at first", "own", 6*mib)
	check("at first", "shared", 2*mib)
	if text := n.Get("/metrics"); !strings.Contains(text, `metric_source="fsquota"`) {
		t.Error("no metric says that the kernel counted")
	}
	n.Kill()
	n.Start()
	check("after a restart", "own", 6*mib)
	n.Settings["featureGates"] = map[string]bool{}
	n.Kill()
	n.Start()
	check("without the gate", "own", 2*mib)
	for _, name := range []string{"own", "shared"} {
		n.RemovePod(name)
		n.AwaitGone(name + "-node")
	}
}

// writeOut writes a file of so many bytes, whose blocks are allocated then, and returns it open.
func writeOut(t *testing.T, path string, size int) *os.File {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err == nil {
		_, err = f.Write(make([]byte, size))
	}
	if err = errors.Join(err, f.Sync()); err != nil {
		t.Fatal(err)
	}
	return f
}

// volumeUses returns how many bytes the summary says are in a pod's only volume.
func volumeUses(n *harness.Node, pod string) (uint64, error) {
	var summary statsapi.Summary
	if err := json.Unmarshal([]byte(n.Get("/stats/summary")), &summary); err != nil {
		return 0, err
	}
	for _, p := range summary.Pods {
		if p.PodRef.Name == pod && len(p.VolumeStats) == 1 && p.VolumeStats[0].UsedBytes != nil {
			return *p.VolumeStats[0].UsedBytes, nil
		}
	}
	return 0, errors.New("it has no volume of the pod")
}
