package volume

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/mount-utils"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/storage/volume/scsi"
	"github.com/numalet/numalet/agent/storage/volume/selinux"
	"github.com/numalet/numalet/test/scratch"
)

const (
	testIQN  = "iqn.2026-01.test:x"
	diskName = "10.0.0.1:3260-" + testIQN + "-lun-2"
	global   = "plugins/kubernetes.io/iscsi/iface-default/" + diskName
)

// san is a node that has a session with a target, as sysfs shows it, and a disk of Fibre Channel.
type san struct {
	*Volumes
	t       *testing.T
	dir     string
	device  string
	mounter *mount.FakeMounter
	pvcs    *storage
	config  Config

	mu  sync.Mutex // guards ran
	ran []string
}

func newSAN(t *testing.T, source v1.PersistentVolumeSource) *san {
	t.Helper()
	n := &san{t: t, dir: t.TempDir(), mounter: mount.NewFakeMounter(nil), pvcs: bind(source)}
	n.device = filepath.Join(n.dir, "dev/sdq")
	session := "sys/class/iscsi_host/host9/device/session1/"
	for path, text := range map[string]string{
		session + "iscsi_session/session1/targetname":                     testIQN,
		session + "iscsi_session/session1/ifacename":                      "default",
		session + "connection1:0/iscsi_connection/connection1:0/address":  "10.0.0.1",
		session + "connection1:0/iscsi_connection/connection1:0/port":     "3260",
		session + "target9:0:0/9:0:0:2/block/sdq/size":                    "1",
		"sys/class/scsi_host/host9/scan":                                  "",
		"sys/block/sdq/device/delete":                                     "",
		"dev/sdq":                                                         "",
		"dev/disk/by-id/unused":                                           "",
		"dev/disk/by-path/pci-0000:41:00.0-fc-0x500a0982891b8dc5-lun-2.x": "",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(n.dir, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(n.dir, path), text)
	}
	if err := os.Symlink("../../sdq", filepath.Join(n.dir, "dev/disk/by-id/scsi-36001")); err != nil {
		t.Fatal(err)
	}
	n.config = Config{Mounter: n.mounter, PVCs: n.pvcs}
	n.config.Disks = DisksConfig{
		Host: scsi.Host{Sys: filepath.Join(n.dir, "sys"), Dev: filepath.Join(n.dir, "dev"),
			Run: func(_ context.Context, name string, args ...string) ([]byte, error) {
				n.mu.Lock()
				defer n.mu.Unlock()
				n.ran = append(n.ran, name+" "+strings.Join(args, " "))
				return nil, nil
			}},
		Secret: func(_ context.Context, namespace, name string) (*v1.Secret, error) {
			if name == "none" {
				return nil, fmt.Errorf("secrets %q not found", name)
			}
			return &v1.Secret{Data: map[string][]byte{"node.session.auth.username": []byte(namespace + "/" + name)}}, nil
		}}
	n.start()
	return n
}

// start starts another agent, which formats in memory.
func (n *san) start() {
	n.t.Helper()
	c := n.config
	if n.Volumes != nil {
		c.Root = n.node.root
	} else {
		c.Root = filepath.Join(n.dir, "root")
	}
	v, err := New(alone(c))
	if err != nil {
		n.t.Fatal(err)
	}
	v.makers.devices.format = func(source, target, fstype string, options []string) error {
		return n.mounter.Mount(source, target, fstype, options)
	}
	n.Volumes = v
}

// tearDown removes a pod's volumes, and runs what follows from that to its end.
func (n *san) tearDown(uid types.UID) {
	n.t.Helper()
	if err := n.TearDown(n.t.Context(), uid); err != nil {
		n.t.Error(err)
	}
	ctx, cancel := context.WithCancel(n.t.Context())
	defer cancel()
	var ended sync.WaitGroup
	ended.Go(func() { _ = n.Disks().Run(ctx) })
	eventually(n.t, "the disk to be detached", func() bool { return len(n.Disks().InUse()) == 0 })
	cancel()
	ended.Wait()
}

// shows compares the mounts, each with its options.
func (n *san) shows(want ...string) {
	n.t.Helper()
	var got []string
	for _, m := range n.mounter.MountPoints {
		if m.Device == n.device {
			got = append(got, strings.TrimPrefix(m.Path, n.node.root+"/")+" "+strings.Join(m.Opts, ","))
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		n.t.Errorf("mounts (-want +got):\n%s", diff)
	}
}

func lun(change ...func(*v1.ISCSIPersistentVolumeSource)) v1.PersistentVolumeSource {
	s := &v1.ISCSIPersistentVolumeSource{TargetPortal: "10.0.0.1", IQN: testIQN, Lun: 2, FSType: "xfs",
		ISCSIInterface: "default"}
	for _, f := range change {
		f(s)
	}
	return v1.PersistentVolumeSource{ISCSI: s}
}

// A disk is mounted once for the node with the volume's options, and for each pod that has it, also one
// that names it itself. After a restart, files and mounts are all that is known. The last pod takes it
// along.
func TestNetworkDisks(t *testing.T) {
	n := newSAN(t, lun())
	n.pvcs.volumes["pv"].Spec.MountOptions = []string{"noatime"}
	pod, inline := podWith(pvcVolume("data")), podWith(v1.Volume{Name: "own", VolumeSource: v1.VolumeSource{
		ISCSI: &v1.ISCSIVolumeSource{TargetPortal: "10.0.0.1:3260", IQN: testIQN, Lun: 2, ReadOnly: true}}})
	inline.UID = "u2"
	setUp(t, n.Volumes, pod)
	setUp(t, n.Volumes, inline)
	setUp(t, n.Volumes, pod)
	n.shows(global+" noatime", "pods/u/volumes/kubernetes.io~iscsi/pv bind,noatime",
		"pods/u2/volumes/kubernetes.io~iscsi/own bind,ro")
	mounts, err := n.Containers.Mounts(t.Context(), inline, &inline.Spec.Containers[0], Start{})
	if err != nil || !mounts[0].GetReadonly() || !strings.HasSuffix(mounts[0].GetHostPath(), "/kubernetes.io~iscsi/own") {
		t.Errorf("the container mounts %v, %v", mounts, err)
	}
	n.start()
	if used := n.Disks().InUse(); len(used) != 2 { // by both of its names
		t.Errorf("in use %q", used)
	}
	if err := n.TearDown(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	n.shows(global+" ", "pods/u2/volumes/kubernetes.io~iscsi/own ") // the fake forgets options
	n.tearDown("u2")
	n.shows()
	for _, path := range []string{"plugins/kubernetes.io/iscsi/iface-default", "pods/u", "pods/u2"} {
		if _, err := os.Lstat(filepath.Join(n.node.root, path)); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
	if !slices.ContainsFunc(n.ran, func(line string) bool { return strings.HasSuffix(line, "--logout") }) {
		t.Errorf("ran %q", n.ran)
	}
}

// A PVC's reference makes the pod's mount read-only, and its group has the files of the others.
func TestNetworkDisksOfGroups(t *testing.T) {
	requireRoot(t)
	n := newSAN(t, v1.PersistentVolumeSource{FC: &v1.FCVolumeSource{WWIDs: []string{"36001"}}})
	v := pvcVolume("data")
	v.PersistentVolumeClaim.ReadOnly = true
	reader, writer := podWith(v), podWith(pvcVolume("data"))
	writer.UID = "w"
	for _, pod := range []*v1.Pod{reader, writer} {
		pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To[int64](4711)}
		dir := setUp(t, n.Volumes, pod)
		gid, err := groupAt(dir + "/volumes/kubernetes.io~fc/pv")
		if want := pod == writer; (gid == 4711) != want || err != nil {
			t.Errorf("%s: group %d, %v", pod.UID, gid, err)
		}
	}
	n.shows("plugins/kubernetes.io/fc/36001 ro", "pods/u/volumes/kubernetes.io~fc/pv bind,ro",
		"pods/w/volumes/kubernetes.io~fc/pv bind")
}

// With CHAP the secret is of the namespace that the volume names, or else of the pod's; the error of one
// that cannot be read is the kubelet's.
func TestSecretsOfDisks(t *testing.T) {
	for name, test := range map[string]struct {
		ref  *v1.SecretReference
		none bool
		want string
	}{
		"the volume's": {ref: &v1.SecretReference{Namespace: "storage", Name: "chap"}, want: "storage/chap"},
		"the pod's":    {ref: &v1.SecretReference{Name: "chap"}, want: "shop/chap"},
		"none":         {want: ""},
		"missing": {ref: &v1.SecretReference{Name: "none"}, want: `MountVolume.SetUp failed for volume "pv" : ` +
			`couldn't get secret shop/none error: secrets "none" not found`},
		"no API server": {ref: &v1.SecretReference{Name: "x"}, none: true, want: `MountVolume.SetUp failed for ` +
			`volume "pv" : there is no API server to get secret x from; run the agent with --kubeconfig`},
	} {
		n := newSAN(t, lun(func(s *v1.ISCSIPersistentVolumeSource) {
			s.SessionCHAPAuth, s.SecretRef, s.IQN = true, test.ref, "iqn.2026-01.test:other"
		}))
		if test.none {
			n.config.Disks.Secret = nil
			n.start()
		}
		err := n.SetUp(t.Context(), podWith(pvcVolume("data")))
		reported := ""
		for _, line := range n.ran {
			if _, value, is := strings.Cut(line, "node.session.auth.username -v "); is {
				reported = value
			}
		}
		if err == nil || reported != test.want && !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: told %q, %v", name, reported, err)
		}
	}
}

// Failures say which part failed, in the kubelet's words.
func TestFailuresOfNetworkDisks(t *testing.T) {
	n := newSAN(t, lun(func(s *v1.ISCSIPersistentVolumeSource) { s.IQN = "iqn.2026-01.test:other" }))
	err := n.SetUp(t.Context(), podWith(pvcVolume("data")))
	if err == nil || !strings.HasPrefix(err.Error(), `MountVolume.WaitForAttach failed for volume "pv" : failed to get `+
		"any path for iscsi disk, LUN 2 of iSCSI target iqn.2026-01.test:other: no portal has the disk: portal 10.0.0.1:3260") {
		t.Errorf("got %v", err)
	}
	n = newSAN(t, lun())
	n.makers.devices.format = func(string, string, string, []string) error {
		return mount.NewMountError(mount.FilesystemMismatch, "wrong fs type")
	}
	err = n.SetUp(t.Context(), podWith(pvcVolume("data")))
	if err == nil || !strings.HasPrefix(err.Error(), `MountVolume.MountDevice failed for volume "pv" : mount the file system`) {
		t.Errorf("got %v", err)
	}
	wrong := podWith(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{FC: &v1.FCVolumeSource{}}})
	if err := n.SetUp(t.Context(), wrong); err == nil ||
		!strings.HasPrefix(err.Error(), `MountVolume.SetUp failed for volume "v" : fc: no fc disk information found`) {
		t.Errorf("got %v", err)
	}
}

// A pod that has a disk as a device has it by a mount and a loop device in the disk's directory, and a
// link in its own, as by a kubelet; also the next agent takes them back.
func TestNetworkBlocks(t *testing.T) {
	if f, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0); err != nil {
		scratch.LeaveOut(t, "loop devices cannot be made: "+err.Error())
	} else if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, again := range []bool{false, true} {
		n := newSAN(t, lun())
		write(t, n.device, strings.Repeat("x", 1<<16))
		n.pvcs.volumes["pv"].Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock)
		pod := podWith(pvcVolume("data"))
		c := &pod.Spec.Containers[0]
		c.VolumeDevices, c.VolumeMounts = []v1.VolumeDevice{{Name: "v", DevicePath: "/dev/x"}}, nil
		dir := setUp(t, n.Volumes, pod)
		file := filepath.Join(n.node.root, "plugins/kubernetes.io/iscsi/volumeDevices/iface-default", diskName, "u")
		if to, err := os.Readlink(dir + "/volumeDevices/kubernetes.io~iscsi/pv"); err != nil || to != n.device {
			t.Errorf("the pod has %s, %v", to, err)
		}
		if mounted, err := n.node.isMounted(file); !mounted || err != nil {
			t.Errorf("mounted %t, %v", mounted, err)
		}
		if n.makers.mapped.hasLoop(file) == false {
			t.Error("no loop device keeps it open")
		}
		before := len(n.ran)
		setUp(t, n.Volumes, pod)
		devices, err := n.Containers.Devices(pod, c)
		if err != nil || len(devices) != 1 || devices[0].GetPermissions() != "mrw" || len(n.ran) != before {
			t.Errorf("devices %v, %v; ran %q", devices, err, n.ran[before:])
		}
		if again {
			n.start()
		}
		n.tearDown("u")
		n.shows()
		if n.makers.mapped.hasLoop(file) {
			t.Error("there is still a loop device")
		}
		if _, err := os.Lstat(filepath.Dir(file)); !os.IsNotExist(err) {
			t.Errorf("the disk's directory is left: %v", err)
		}
	}
}

// On a host with SELinux the file system is mounted with the pod's label, and the runtime relabels nothing.
func TestLabeledNetworkDisks(t *testing.T) {
	n := newSAN(t, lun())
	labels, err := selinux.New(selinux.Host{Enabled: func() bool { return true },
		FileLabel: func(o *v1.SELinuxOptions) (string, error) { return "files:" + o.Level, nil },
	}, func(string) bool { return true }, nil)
	if err != nil {
		t.Fatal(err)
	}
	n.config.SELinux = labels
	n.start()
	pod := podWith(pvcVolume("data"))
	pod.Spec.SecurityContext = &v1.PodSecurityContext{SELinuxOptions: &v1.SELinuxOptions{Level: "s0:c1"}}
	setUp(t, n.Volumes, pod)
	n.shows(global+` context="files:s0:c1"`, "pods/u/volumes/kubernetes.io~iscsi/pv bind")
	mounts, err := n.Containers.Mounts(t.Context(), pod, &pod.Spec.Containers[0], Start{})
	if err != nil || mounts[0].GetSelinuxRelabel() {
		t.Errorf("the runtime is to label %v, %v", mounts, err)
	}
}
