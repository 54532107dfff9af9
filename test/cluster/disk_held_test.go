package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/test/cluster/rig"
	containerdrig "github.com/numalet/numalet/test/containerd/rig"
	"github.com/numalet/numalet/test/harness"
)

// heldFile is a file that a container deletes and holds open, so that no directory shows it.
type heldFile struct{ where, path string }

var heldFiles = []heldFile{{"a volume", "/cache/held"}, {"its layer", "/held"}}

// TestDeletedFileHeld: a pod whose real container fills the node's only disk through a deleted file
// is evicted, and it alone, while pods with small files stay. The test prints which pods the stock
// kubelet evicts for one of the files, in half a minute.
func TestDeletedFileHeld(t *testing.T) {
	containerdrig.Require(t)
	containerdrig.Alone(t)
	for _, agent := range agents {
		t.Run(agent, func(t *testing.T) {
			t.Parallel()
			s := onOneDisk(t, agent)
			if agent == "kubelet" {
				s.evictedFor(t, heldFiles[0], func(v1.Pod) {})
				return
			}
			for _, held := range heldFiles {
				s.evictedFor(t, held, func(pod v1.Pod) {
					if pod.Name != "hog" {
						t.Fatalf("%s is evicted for a deleted file that the hog holds in %s", pod.Name, held.where)
					}
					if !strings.Contains(pod.Status.Message, "The pod holds deleted files of ") {
						t.Errorf("a deleted file in %s: the message does not say why: %s", held.where, pod.Status.Message)
					}
				})
			}
		})
	}
}

// onOneDisk starts an agent whose root directory is on one small disk with all of containerd.
func onOneDisk(t *testing.T, agent string) *side {
	t.Helper()
	c := rig.Start(t)
	n, d, _ := containerdrig.NodeOnDisk(t, agent, smallDisk)
	containerdrig.ImportShell(t, d)
	root := filepath.Join(filepath.Dir(d.LogFile()), "agent")
	must(t, errors.Join(os.Mkdir(root, 0o750), os.MkdirAll(n.Root, 0o750)))
	must(t, unix.Mount(root, n.Root, "", unix.MS_BIND, "")) // the node's cleanup unmounts it
	return startOnDisk(t, c, n, agent)
}

// evictedFor has the hog fill the disk through a file that it holds, and looks at each pod that is
// evicted, until the hog is and the disk is no longer short.
func (s *side) evictedFor(t *testing.T, held heldFile, look func(v1.Pod)) {
	t.Helper()
	small := []string{"a", "b", "c"}
	for _, name := range small {
		s.runScript(name, "dd if=/dev/zero of=/cache/small bs=1M count=5")
	}
	s.runScript("hog", fmt.Sprintf("exec 3>%[1]s; rm %[1]s", held.path))
	for _, name := range append(small, "hog") {
		await(t, s.Cluster, s.Namespace, name, runs)
	}
	s.awaitUse(t, small, 5*mi)
	began, gone := time.Now(), map[string]bool{}
	s.MustRun("exec", "hog", "--", "fallocate", "-l", fmt.Sprint(s.room(t)-60*mi), "/proc/1/fd/3")
	harness.Eventually(t, "the hog is evicted and the disk no longer short", func() error {
		pods, err := s.Client.CoreV1().Pods(s.Namespace).List(context.Background(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, p := range pods.Items {
			if p.Status.Reason == "Evicted" && !gone[p.Name] {
				gone[p.Name] = true
				t.Logf("%s, a deleted file in %s: %s is evicted after %.1f s: %s", s.Name, held.where,
					p.Name, time.Since(began).Seconds(), p.Status.Message)
				look(p)
			}
		}
		if !gone["hog"] {
			return errors.New("it is not")
		}
		return s.diskPressure()
	})
	s.MustRun("delete", "pods", "--all", "--timeout=1m")
}

// runScript starts a pod that is ready once its container has run a script.
func (s *side) runScript(name, script string) {
	s.Apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {
 nodeName: %s, automountServiceAccountToken: false, restartPolicy: Never,
 terminationGracePeriodSeconds: 1, tolerations: [{operator: Exists}],
 volumes: [{name: cache, emptyDir: {}}], containers: [{name: main, image: "%s",
  command: [sh, -c, "%s; touch /ready; exec sleep 600"],
  readinessProbe: {periodSeconds: 1, exec: {command: [test, -e, /ready]}},
  volumeMounts: [{name: cache, mountPath: /cache}]}]}}`,
		name, s.Name, containerdrig.ShellImage, script))
}

// awaitUse waits until the node's summary says that pods use at least so much of its disk.
func (s *side) awaitUse(t *testing.T, pods []string, least uint64) {
	t.Helper()
	harness.Eventually(t, "the summary has what the pods use", func() error {
		text, err := s.Run("get", "--raw", "/api/v1/nodes/"+s.Name+"/proxy/stats/summary")
		if err != nil {
			return err
		}
		var summary statsapi.Summary
		if err := json.Unmarshal([]byte(text), &summary); err != nil {
			return err
		}
		for _, name := range pods {
			if !slices.ContainsFunc(summary.Pods, func(p statsapi.PodStats) bool {
				e := p.EphemeralStorage
				return p.PodRef.Name == name && e != nil && e.UsedBytes != nil && *e.UsedBytes >= least
			}) {
				return fmt.Errorf("%s uses less in %s", name, text)
			}
		}
		return nil
	})
}

// room returns how many bytes are left on the disk of the agent's root directory.
func (s *side) room(t *testing.T) int64 {
	t.Helper()
	var fs unix.Statfs_t
	must(t, unix.Statfs(s.Root, &fs))
	return int64(fs.Bavail) * fs.Bsize
}
