package cluster_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/mount-utils"

	"github.com/numalet/numalet/cmd/numalet-lab/csidriver"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// csiStateful is a StatefulSet whose pods write to their volumes all the time, on two nodes.
type csiStateful struct {
	*csiStory
	t     *testing.T
	nodes map[string]rig.Node
	// written is what was written and synced, and by holds the last pod that wrote it, by the pod's name.
	written map[string]string
	by      map[string]v1.Pod
	pods    int // that found what their predecessors had written
	moved   int // of them, those on another node
}

// TestCSIStatefulSet: a StatefulSet is scaled, rolled and drained from node to node while its pods write
// to their volumes. Each pod finds all that its predecessor has written and synced, no volume is on two
// nodes, and at the end none is left.
func TestCSIStatefulSet(t *testing.T) {
	if harness.Number(t, "NUMALET_ROUNDS", 0) == 0 {
		t.Skip("$NUMALET_ROUNDS is not set; the test takes a minute")
	}
	c := rig.Start(t)
	s := newCSIStateful(t, c)
	const replicas = 3
	for i := range replicas {
		s.addClaim(t, fmt.Sprintf("data-db-%d", i))
	}
	manifest := controller("StatefulSet", "apps/v1", "db", fmt.Sprintf(`  serviceName: db
  replicas: %d
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}
`, replicas))
	manifest = strings.Replace(manifest, "image: registry.test/work:1",
		"image: registry.test/work:1, volumeMounts: [{name: data, mountPath: /data}]", 1)
	rollout := []string{"rollout", "status", "statefulset/db", "--timeout=2m"}
	s.Apply(manifest)
	s.during(replicas, rollout)
	s.during(1, []string{"scale", "statefulset/db", "--replicas=1"})
	s.during(replicas, []string{"scale", "statefulset/db", "--replicas=3"}, rollout)
	s.Apply(strings.Replace(manifest, "work:1", "work:2", 1))
	s.during(replicas, rollout)
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		s.during(replicas, []string{"drain", name, "--timeout=2m"}, rollout)
		s.MustRun("uncordon", name)
	}
	s.Apply(strings.Replace(manifest, "work:1", "work:3", 1))
	s.during(replicas, rollout)
	s.during(0, []string{"delete", "statefulset/db"}, []string{"delete", "pods", "--all", "--timeout=2m"})
	harness.Eventually(t, "no volume is left", func() error { return s.left() })
	checkCalls(t, s.d.Calls(), nil)
	if t.Logf("%d pods found what was written, %d on another node", s.pods, s.moved); s.moved < replicas {
		t.Errorf("only %d pods moved", s.moved)
	}
}

func newCSIStateful(t *testing.T, c rig.Cluster) *csiStateful {
	t.Helper()
	first, second := csiNodeOf(t, c, "numalet-one"), csiNodeOf(t, c, "numalet-two")
	s := &csiStory{Cluster: c, Node: first, events: map[string]bool{},
		csiCase: csiCase{name: "sets", driver: csidriver.Config{Nodes: []string{second.Name}}}}
	s.serve(t)
	second.CSIDriver(csidriver.Config{Name: s.d.Name, Dir: s.d.Dir})
	for _, n := range []rig.Node{first, second} {
		s.await(t, "the driver is registered on "+n.Name, func() error {
			_, err := (&csiStory{Cluster: c, Node: n, d: s.d}).registered(t)
			return err
		})
	}
	return &csiStateful{csiStory: s, t: t, nodes: map[string]rig.Node{first.Name: first, second.Name: second},
		written: map[string]string{}, by: map[string]v1.Pod{}}
}

// during runs kubectl while the pods write, and on until as many pods as wanted have written.
func (s *csiStateful) during(pods int, commands ...[]string) {
	s.t.Helper()
	done := make(chan error, 1)
	go func() {
		for _, args := range commands {
			if out, err := s.Run(args...); err != nil {
				done <- fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
				return
			}
		}
		done <- nil
	}()
	for finished, until := false, time.Now().Add(harness.Patience); ; time.Sleep(50 * time.Millisecond) {
		running, err := s.write()
		if err != nil {
			s.t.Fatalf("during kubectl %v: %v", commands, err)
		}
		if finished && running == pods {
			return
		}
		if time.Now().After(until) {
			s.t.Fatalf("after kubectl %v: %d pods write, want %d", commands, running, pods)
		}
		select {
		case err := <-done:
			if finished = true; err != nil {
				s.t.Fatal(err)
			}
		default:
		}
	}
}

// write has each pod that runs look at its volume and write a line to it. It returns how many did, or -1
// while some pod is not as it will be.
func (s *csiStateful) write() (pods int, err error) {
	all, err := s.Client.CoreV1().Pods(s.Namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: "app=db"})
	if err != nil {
		return 0, err
	}
	settled := true
	for _, p := range all.Items {
		if p.DeletionTimestamp != nil || !runs(&p) {
			settled = false
			continue
		}
		wrote, err := s.writeAs(p)
		if err != nil {
			return 0, fmt.Errorf("pod %s on node %s: %w", p.Name, p.Spec.NodeName, err)
		}
		if wrote {
			pods++
		}
	}
	if !settled {
		return -1, nil
	}
	return pods, nil
}

// writeAs writes as a pod; wrote: its volume was still there.
func (s *csiStateful) writeAs(p v1.Pod) (wrote bool, err error) {
	dir := filepath.Join(s.nodes[p.Spec.NodeName].Root, "pods", string(p.UID), "volumes/kubernetes.io~csi",
		s.Namespace+"-data-"+p.Name, "mount")
	mounts, err := mount.ParseMountInfo("/proc/self/mountinfo")
	here := func(m mount.MountInfo) bool { return m.MountPoint == dir }
	if err != nil || !slices.ContainsFunc(mounts, here) {
		return false, err // it has been deleted since
	}
	path, flags := filepath.Join(dir, "file"), os.O_RDWR|os.O_APPEND
	if s.written[p.Name] == "" {
		flags |= os.O_CREATE
	}
	file, err := os.OpenFile(path, flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if s.isStill(p) {
			return false, fmt.Errorf("the volume has nothing of %q", s.written[p.Name])
		}
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	has := make([]byte, len(s.written[p.Name])+1)
	n, _ := file.ReadAt(has, 0) // it is shorter
	if string(has[:n]) != s.written[p.Name] {
		return false, fmt.Errorf("the volume has %q; written and synced was %q", has[:n], s.written[p.Name])
	}
	line := string(p.UID) + "\n"
	_, err = file.WriteString(line)
	if err := errors.Join(err, file.Sync()); err != nil {
		return false, err
	}
	s.written[p.Name] += line
	if last := s.by[p.Name]; last.UID != p.UID {
		if s.by[p.Name] = p; last.UID != "" {
			s.pods++
		}
		if last.UID != "" && last.Spec.NodeName != p.Spec.NodeName {
			s.moved++
		}
	}
	return true, nil
}

// isStill reports whether the pod runs.
func (s *csiStateful) isStill(p v1.Pod) bool {
	now, err := s.Client.CoreV1().Pods(s.Namespace).Get(s.t.Context(), p.Name, metav1.GetOptions{})
	return err == nil && now.UID == p.UID && now.DeletionTimestamp == nil
}

// left returns what is left on the nodes and in the cluster.
func (s *csiStateful) left() error {
	attachments, err := s.Client.StorageV1().VolumeAttachments().List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, a := range attachments.Items {
		if a.Spec.Attacher == s.d.Name {
			err = errors.Join(err, fmt.Errorf("attachment of %s", *a.Spec.Source.PersistentVolumeName))
		}
	}
	for _, n := range s.nodes {
		for _, dir := range []string{"plugins/kubernetes.io", "pods"} {
			if mounts := mountsBelow(s.t, filepath.Join(n.Root, dir)); len(mounts) > 0 {
				err = errors.Join(err, fmt.Errorf("mounts %v", mounts))
			}
		}
	}
	if loops := csidriver.Loops(s.d.Dir); len(loops) > 0 {
		err = errors.Join(err, fmt.Errorf("loop devices %v", loops))
	}
	return err
}
