package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// loopDevice returns a block device of 64 MiB for this test alone: it ends with the test's process
// and with its last mount.
func loopDevice(t *testing.T) string {
	t.Helper()
	image, err := os.Create(filepath.Join(t.TempDir(), "image"))
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	if err := image.Truncate(64 << 20); err != nil {
		t.Fatal(err)
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	for try := 0; ; try++ { // another process may take the free one
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			t.Fatalf("find a loop device: %v", err)
		}
		path := fmt.Sprintf("/dev/loop%d", number)
		device, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		err = unix.IoctlLoopConfigure(int(device.Fd()), &unix.LoopConfig{Fd: uint32(image.Fd()),
			Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}})
		if err == nil {
			t.Cleanup(func() {
				letGo(t, device)
				device.Close()
			})
			return path
		}
		device.Close()
		if try == 10 {
			t.Fatalf("configure %s: %v", path, err)
		}
	}
}

// TestMappedByTheKubelet: when a pod with a block volume of the stock kubelet ends under numalet,
// nothing of the volume is left.
func TestMappedByTheKubelet(t *testing.T) {
	c := rig.Start(t)
	agent := harness.New(t)
	rig.StockKubelet(t, agent)
	n := c.Join(agent, "switched")
	n.Start()
	c.AwaitReady(n.Name)
	t.Cleanup(func() {
		c.MustRun("delete", "pv", "--ignore-not-found", c.Namespace+"-raw", "--wait=false")
	})
	raw := loopDevice(t)
	claim(c, "raw", "volumeMode: Block,")
	bind(c, "raw", fmt.Sprintf("local: {path: %q}, volumeMode: Block", raw))
	hasDevice(t, c, n, raw)
	mapped := filepath.Join(n.Root, "plugins/kubernetes.io~local-volume/volumeDevices")
	if !mountedBelow(t, mapped) || len(loopsBelow(t, mapped)) != 1 {
		t.Fatalf("the kubelet has no mount and one loop device below %s: it does otherwise now",
			mapped)
	}
	n.Kill()
	n.Program = nil
	n.Start()
	c.AwaitReady(n.Name)
	c.MustRun("delete", "pod", "has-raw", "--timeout=2m")
	harness.Eventually(t, "what the kubelet mapped is gone", func() error {
		left, err := filepath.Glob(mapped + "/*")
		if loops := loopsBelow(t, mapped); mountedBelow(t, mapped) || len(loops)+len(left) > 0 {
			err = fmt.Errorf("there are %q and %q, or something is mounted", left, loops)
		}
		return err
	})
}

// loopsBelow returns the files below dir with loop devices.
func loopsBelow(t *testing.T, dir string) (out []string) {
	t.Helper()
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, _ := os.ReadFile(file) // it may end meanwhile
		if strings.HasPrefix(string(text), dir+"/") {
			out = append(out, strings.TrimSpace(string(text)))
		}
	}
	return out
}

// letGo ends loop devices on the device: the kubelet keeps one for a volume that pods have as a
// device, even when it was stopped before it was done with the pod.
func letGo(t *testing.T, device *os.File) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(device.Fd()), &stat); err != nil {
		t.Error(err)
	}
	others, err := filepath.Glob("/dev/loop[0-9]*")
	if err != nil {
		t.Error(err)
	}
	for _, path := range others {
		other, err := os.Open(path)
		if err != nil {
			continue
		}
		info, err := unix.IoctlLoopGetStatus64(int(other.Fd()))
		if err == nil && info.Rdevice == stat.Rdev {
			if err := unix.IoctlSetInt(int(other.Fd()), unix.LOOP_CLR_FD, 0); err != nil {
				t.Errorf("let %s go: %v", path, err)
			}
		}
		other.Close()
	}
}

// mountedBelow reports whether the kernel's list has a mount point with this prefix.
func mountedBelow(t *testing.T, dir string) bool {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(mounts), " "+dir)
}

// TestBlockVolumes: from a local volume on a block device a pod gets the file system, which is made
// if there is none and is there again for the next pod, or with volumeMode Block the device.
// Nothing stays mounted.
func TestBlockVolumes(t *testing.T) {
	onEach(t, func(t *testing.T, c rig.Cluster, n rig.Node) {
		t.Cleanup(func() {
			for _, name := range []string{"disk", "raw"} {
				c.MustRun("delete", "pv", "--ignore-not-found", c.Namespace+"-"+name, "--wait=false")
			}
		})
		disk, raw := loopDevice(t), loopDevice(t)
		claim(c, "disk", "")
		bind(c, "disk", fmt.Sprintf("local: {path: %q}", disk))
		claim(c, "raw", "volumeMode: Block,")
		bind(c, "raw", fmt.Sprintf("local: {path: %q}, volumeMode: Block", raw))
		volume := "kubernetes.io~local-volume/" + c.Namespace + "-disk"
		c.Apply(claimant(n, "first", "disk"))
		first := await(t, c, c.Namespace, "first", runs)
		at := filepath.Join(n.Root, "pods", string(first.UID), "volumes", volume)
		if err := os.WriteFile(filepath.Join(at, "file"), []byte("kept"), 0o600); err != nil {
			t.Error(err)
		}
		global := filepath.Join(n.Root, "plugins/kubernetes.io/local-volume/mounts",
			c.Namespace+"-disk")
		if !mountedBelow(t, global) || !mountedBelow(t, at) {
			t.Errorf("%s and %s are not both mounted", global, at)
		}
		if n.Name != "kubelet" {
			n.Kill()
			n.Start()
			c.AwaitReady(n.Name)
		}
		c.MustRun("delete", "pod", "first", "--timeout=2m")
		harness.Eventually(t, "the device is not mounted any more", func() error {
			if mountedBelow(t, global) || mountedBelow(t, at) {
				return fmt.Errorf("%s or %s is", global, at)
			}
			return nil
		})
		c.Apply(claimant(n, "second", "disk"))
		second := await(t, c, c.Namespace, "second", runs)
		if got, err := fileIn(n, second, volume+"/file"); got != "kept" || err != nil {
			t.Errorf("the next pod's volume has %q, %v", got, err)
		}
		hasDevice(t, c, n, raw)
		c.MustRun("delete", "pod", "second", "has-raw", "--timeout=2m")
		harness.Eventually(t, "nothing is mounted", func() error {
			if mountedBelow(t, global) || mountedBelow(t, n.Root+"/pods/") {
				return fmt.Errorf("something is mounted below %s", n.Root)
			}
			return nil
		})
	})
}

// hasDevice checks that a container has the device of the claim raw.
func hasDevice(t *testing.T, c rig.Cluster, n rig.Node, device string) {
	t.Helper()
	c.Apply(strings.Replace(claimant(n, "has-raw", "raw"),
		"volumeMounts: [{name: data, mountPath: /data}]",
		"volumeDevices: [{name: data, devicePath: /dev/xvda}]", 1))
	pod := await(t, c, c.Namespace, "has-raw", runs)
	container, _ := n.Runtime.State().Container("has-raw", "main")
	devices := container.Config.GetDevices()
	link := filepath.Join(n.Root, "pods", string(pod.UID), "volumeDevices/kubernetes.io~local-volume",
		c.Namespace+"-raw")
	if len(devices) != 1 || devices[0].GetHostPath() != link ||
		devices[0].GetContainerPath() != "/dev/xvda" || devices[0].GetPermissions() != "mrw" {
		t.Errorf("the container has %v", devices)
	}
	if to, err := filepath.EvalSymlinks(link); to != device {
		t.Errorf("%s leads to %q, %v; want %s", link, to, err, device)
	}
}
