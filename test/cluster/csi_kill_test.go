package cluster_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/mount-utils"

	"github.com/numalet/numalet/cmd/numalet-lab/csidriver"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// startCSI starts a driver with an attacher on a node.
func startCSI(t *testing.T, c rig.Cluster, n rig.Node, name string) *csiStory {
	t.Helper()
	s := &csiStory{Cluster: c, Node: n, csiCase: csiCase{name: name}, events: map[string]bool{}}
	s.serve(t)
	s.await(t, "the driver is registered", func() error { return s.isRegistered(t, true) })
	return s
}

// file returns a file in a pod's volume, as the node sees it.
func (s *csiStory) file(p *v1.Pod) string {
	return filepath.Join(s.Root, "pods", string(p.UID), "volumes/kubernetes.io~csi", s.Namespace+"-"+p.Name,
		"mount/file")
}

// writeSynced writes a file and returns once it is on the disk.
func writeSynced(path, text string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Sync(), file.Close())
}

// TestCSIKill: the agent and the driver are killed again and again, at any time, while pods with volumes
// come and go. What was written and synced is there, nothing stays mounted, and nothing is unstaged in
// use. $NUMALET_ROUNDS says how often; once without it.
func TestCSIKill(t *testing.T) {
	c := rig.Start(t)
	n := csiNodeOf(t, c, "numalet")
	s := startCSI(t, c, n, "kill")
	const pods = 3
	for i := range pods {
		s.addClaim(t, podOf(i))
	}
	written := map[string]string{}
	var last map[string]*v1.Pod
	for round := range harness.Number(t, "NUMALET_ROUNDS", 1) {
		for i := range pods {
			s.begin(podOf(i))
		}
		s.disturb()
		last = map[string]*v1.Pod{}
		for i := range pods {
			pod := await(t, c, c.Namespace, podOf(i), runs)
			last[pod.Name] = pod
			if text, err := os.ReadFile(s.file(pod)); string(text) != written[pod.Name] &&
				(err == nil || written[pod.Name] != "") {
				t.Errorf("round %d: pod %s has %q, %v; written was %q", round, pod.Name, text, err, written[pod.Name])
			}
			written[pod.Name] = fmt.Sprintf("%s in round %d", pod.Name, round)
			if err := writeSynced(s.file(pod), written[pod.Name]); err != nil {
				t.Fatal(err)
			}
		}
		for i := range pods {
			c.MustRun("delete", "pod", podOf(i), "--wait=false")
		}
		s.disturb()
		for _, pod := range last {
			s.ended(t, string(pod.UID))
		}
		checkCalls(t, s.d.Calls(), nil)
		if t.Failed() {
			t.FailNow()
		}
	}
	if mountedBelow(t, filepath.Join(n.Root, "plugins/kubernetes.io/csi")) || mountedBelow(t, n.Root+"/pods/") {
		t.Error("something stays mounted")
	}
}

func podOf(i int) string { return fmt.Sprintf("pod-%d", i) }

// disturb kills the agent, the driver, or one after the other, soon, and starts them again.
func (s *csiStory) disturb() {
	wait := func() { time.Sleep(time.Duration(rand.IntN(int(1500 * time.Millisecond)))) }
	wait()
	which := rand.IntN(3)
	if which != 0 {
		s.d.Process.Kill()
	}
	if which != 1 {
		s.Node.Kill()
		wait()
		s.Node.Start()
	}
	if which != 0 {
		wait()
		if err := s.d.Process.Start(); err != nil {
			panic(err) // it could be started before
		}
	}
}

// TestCSISwitch: a node whose pods have volumes of CSI drivers, as a file system and as a device, goes
// from the stock kubelet to numalet and back. No container notices, no volume is taken from its pod, and
// each agent takes back what the other has published.
func TestCSISwitch(t *testing.T) {
	c := rig.Start(t)
	is := harness.New(t)
	is.Settings["syncFrequency"], is.Settings["nodeStatusUpdateFrequency"] = "1s", "1s"
	rig.StockKubelet(t, is)
	n := c.Join(is, "switched")
	kubelet := n.Program
	n.Start()
	c.AwaitReady(n.Name)
	s := startCSI(t, c, n, "switch")
	s.addClaim(t, "files")
	s.begin("files")
	s.addClaim(t, "stays")
	s.begin("stays")
	device := *s
	device.volume, device.mount = "volumeMode: Block,", "volumeDevices: [{name: data, devicePath: /dev/xvda}]"
	device.addClaim(t, "device")
	device.begin("device")
	want := map[string]string{}
	for _, name := range []string{"files", "stays", "device"} {
		want[name] = containersOf(await(t, c, c.Namespace, name, runs))
	}
	stays := await(t, c, c.Namespace, "stays", runs)
	if err := writeSynced(s.file(stays), "kept"); err != nil {
		t.Fatal(err)
	}
	for _, ended := range []string{"files", "device"} { // under numalet, then under the kubelet
		if err := n.Stop(); err != nil {
			t.Errorf("the agent stopped: %v", err)
		}
		if n.Program = nil; ended == "device" {
			n.Program = kubelet
		}
		n.Start()
		c.AwaitReady(n.Name)
		for name, ids := range want {
			if now := containersOf(await(t, c, c.Namespace, name, runs)); now != ids {
				t.Errorf("pod %s has containers %s, and had %s", name, now, ids)
			}
		}
		pod := await(t, c, c.Namespace, ended, runs)
		c.MustRun("delete", "pod", ended, "--timeout=2m")
		delete(want, ended)
		harness.Eventually(t, "nothing is left of pod "+ended, func() error {
			for _, m := range mountsBelow(t, n.Root) {
				if strings.Contains(m, string(pod.UID)) || strings.Contains(m, "-"+ended) {
					return fmt.Errorf("%s is mounted", m)
				}
			}
			if loops := csidriver.Loops(s.d.Dir); len(loops) > len(want) {
				return fmt.Errorf("there are the loop devices %v", loops)
			}
			return s.staged(1) // that of the pod that stays
		})
		if text, err := os.ReadFile(s.file(stays)); string(text) != "kept" {
			t.Errorf("the volume of the pod that stays has %q, %v", text, err)
		}
		checkCalls(t, s.d.Calls(), nil)
	}
	c.MustRun("delete", "pod", "stays", "--timeout=2m")
	s.ended(t, string(stays.UID))
	checkCalls(t, s.d.Calls(), nil)
}

func containersOf(p *v1.Pod) (ids string) {
	for _, c := range p.Status.ContainerStatuses {
		ids += c.ContainerID + fmt.Sprintf(" (%d restarts) ", c.RestartCount)
	}
	return ids
}

// mountsBelow returns the mount points below dir.
func mountsBelow(t *testing.T, dir string) (out []string) {
	t.Helper()
	all, err := mount.ParseMountInfo("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if strings.HasPrefix(m.MountPoint, dir+"/") {
			out = append(out, m.MountPoint)
		}
	}
	return out
}
