package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
	"github.com/numalet/numalet/test/scratch"
)

// diskHogs fill a volume in ways that made it look small.
var diskHogs = map[string]func(t *testing.T, dir string){
	"below a long path": func(t *testing.T, dir string) {
		in, err := os.OpenRoot(dir)
		for range 18 {
			name := strings.Repeat("d", 250)
			if err == nil {
				err = in.Mkdir(name, 0o700)
			}
			if err != nil {
				t.Fatal(err)
			}
			var next *os.Root
			next, err = in.OpenRoot(name)
			in.Close()
			in = next
		}
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		f, err := in.Create("big")
		fill(t, f, err)
	},
	"behind many links": func(t *testing.T, dir string) {
		for i := range 66_000 {
			name := filepath.Join(dir, fmt.Sprint(i))
			must(t, os.WriteFile(name, nil, 0o600))
			must(t, os.Link(name, name+"-again"))
		}
		must(t, os.Mkdir(filepath.Join(dir, "z"), 0o700))
		big := filepath.Join(dir, "z", "big")
		f, err := os.Create(big)
		fill(t, f, err)
		must(t, os.Link(big, big+"-again"))
	},
	"at once": func(t *testing.T, dir string) {
		f, err := os.Create(filepath.Join(dir, "big"))
		fill(t, f, err)
	},
}

// fill makes a file of which the disk runs short.
func fill(t *testing.T, f *os.File, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, 560*mi); err != nil {
		t.Fatal(err)
	}
}

// TestDiskHogs: a pod that fills the disk is evicted before any of those that use little, however it hides
// what it has. Of the stock kubelet the test prints which pod goes first.
func TestDiskHogs(t *testing.T) {
	if os.Geteuid() != 0 {
		scratch.LeaveOut(t, "a disk of its own needs root")
	}
	t.Run("numalet", func(t *testing.T) {
		s := onSmallDisk(t, "numalet")
		for name, hog := range diskHogs {
			t.Run(name, func(t *testing.T) {
				first, after := s.firstToGo(t, hog)
				if first != "hog" { // a machine that is too busy to measure it within ten seconds
					t.Logf("%s goes first, after %v", first, after)
					first, after = s.firstToGo(t, hog)
				}
				if first != "hog" {
					t.Errorf("%s goes first, after %v", first, after)
				} else {
					fmt.Printf("numalet, %s: the hog goes first, after %.1f s\n", name, after.Seconds())
				}
			})
		}
	})
	t.Run("kubelet", func(t *testing.T) {
		first, after := onSmallDisk(t, "kubelet").firstToGo(t, diskHogs["below a long path"])
		fmt.Printf("kubelet, below a long path: %s goes first, after %.1f s\n", first, after.Seconds())
	})
}

// onSmallDisk starts an agent whose root directory is on a disk of 700 MiB.
func onSmallDisk(t *testing.T, agent string) *side {
	t.Helper()
	c := rig.Start(t)
	n := harness.NewWith(t, crisim.Config{Images: []string{rootImage}})
	rig.ThisMachine(n)
	must(t, os.MkdirAll(n.Root, 0o750))
	smallDisk(t, n.Root)
	return startOnDisk(t, c, n, agent)
}

// smallDisk mounts a disk of 700 MiB at a directory until the test ends.
func smallDisk(t *testing.T, dir string) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "disk")
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, 700*mi))
	for _, command := range []string{"mkfs.ext4 -q -m 0 -N 200000 " + image, "mount -o loop " + image + " " + dir} {
		if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	t.Cleanup(func() {
		for unix.Unmount(dir, unix.MNT_DETACH) == nil { // the kubelet's root is mounted twice
		}
	})
}

// startOnDisk starts an agent that evicts when less than 100 MiB are left.
func startOnDisk(t *testing.T, c rig.Cluster, n *harness.Node, agent string) *side {
	t.Helper()
	if agent == "kubelet" {
		rig.StockKubelet(t, n)
	}
	n.Settings["cpuManagerPolicy"], n.Settings["topologyManagerPolicy"] = "none", "none"
	n.Settings["evictionHard"] = map[string]string{"nodefs.available": "100Mi"}
	n.Settings["evictionPressureTransitionPeriod"] = "1s"
	n.Settings["volumeStatsAggPeriod"] = "10s"
	s := &side{Cluster: c, Node: c.Join(n, agent)}
	s.Start()
	s.AwaitReady(s.Name)
	return s
}

// firstToGo returns the pod that is evicted first when one fills the disk, and how long after that.
func (s *side) firstToGo(t *testing.T, hog func(*testing.T, string)) (first string, after time.Duration) {
	t.Helper()
	names := []string{"hog", "a", "b", "c"}
	for _, name := range names {
		s.Apply(storageCase{name: name, containers: container("main", "", "cache"), volumes: "{name: cache, emptyDir: {}}",
			more: "tolerations: [{operator: Exists}],"}.manifest(s.Name))
	}
	dir := ""
	for _, name := range names {
		p := await(t, s.Cluster, s.Namespace, name, runs)
		if name == "hog" {
			dir = filepath.Dir(filepath.Join(s.Root, "pods", string(p.UID), cacheFile))
		} else {
			s.write(t, p, map[string]int{cacheFile: 5 * mi})
		}
	}
	began := time.Now()
	hog(t, dir)
	harness.Eventually(t, "a pod is evicted", func() error {
		pods, err := s.Client.CoreV1().Pods(s.Namespace).List(context.Background(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		at := slices.IndexFunc(pods.Items, func(p v1.Pod) bool { return p.Status.Reason == "Evicted" })
		if at < 0 {
			return errors.New("none is")
		}
		first, after = pods.Items[at].Name, time.Since(began)
		return nil
	})
	s.MustRun("delete", "pods", "--all", "--timeout=1m")
	harness.Eventually(t, "the disk is no longer short", s.diskPressure)
	return first, after
}

// diskPressure returns an error while the node says that its disk is short.
func (s *side) diskPressure() error {
	node, err := s.Client.CoreV1().Nodes().Get(context.Background(), s.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range node.Status.Conditions {
		if c.Type == v1.NodeDiskPressure && c.Status == v1.ConditionTrue {
			return errors.New("it is")
		}
	}
	return nil
}
