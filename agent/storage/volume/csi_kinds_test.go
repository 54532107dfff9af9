package volume

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/storage/volume/csi"
	"github.com/numalet/numalet/agent/storage/volume/csi/csitest"
	"github.com/numalet/numalet/internal/podtest"
)

// ephemeralDisk is a volume that a pod's spec has from the driver.
func ephemeralDisk() v1.Volume {
	return v1.Volume{Name: "scratch", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{
		Driver: csitest.Name, ReadOnly: ptr.To(true), FSType: ptr.To("xfs"),
		VolumeAttributes:     map[string]string{"size": "1"},
		NodePublishSecretRef: &v1.LocalObjectReference{Name: "key"},
	}}}
}

// A volume of the pod's spec is published and no more; its driver must say that it can be had so.
func TestEphemeralDisk(t *testing.T) {
	n := newDisk(t, stages)
	n.objects.change(func(o *diskObjects) { o.unattached = true }) // nobody attaches it
	n.objects.secrets = map[string]string{"shop/key": "p"}
	pod := podtest.New("shop/web", podtest.UID("u"), podtest.Containers("c"),
		podtest.Mounts(ephemeralDisk()))
	const refused = `MountVolume.SetUp failed for volume "scratch" : kubernetes.io/csi: ` +
		`mounter.SetupAt failed to check volume lifecycle mode: volume mode "Ephemeral" not supported ` +
		"by driver disk.example.com "
	for want, modes := range map[string][]storagev1.VolumeLifecycleMode{
		"(no CSIDriver object)":          nil,
		`(only supports ["Persistent"])`: {storagev1.VolumeLifecyclePersistent},
	} {
		n.objects.has(nil)
		if modes != nil {
			n.objects.has(&storagev1.CSIDriver{
				Spec: storagev1.CSIDriverSpec{VolumeLifecycleModes: modes}})
		}
		if err := n.SetUp(t.Context(), pod); err == nil || err.Error() != refused+want {
			t.Errorf("got %v, want %s%s", err, refused, want)
		}
	}
	n.did("refused")
	n.objects.has(&storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{
		PodInfoOnMount:       ptr.To(true),
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}}})
	dir := setUp(t, n.Volumes, pod)
	req := request[*csipb.NodePublishVolumeRequest](n, csitest.Publish)
	const handle = "csi-5cc88d3ce1e4d2d42b1d3b0e0c4c2b7c"
	if id := req.GetVolumeId(); !strings.HasPrefix(id, "csi-") || len(id) != 68 {
		t.Errorf("its handle is %s, like %s", id, handle)
	}
	if !req.GetReadonly() || req.GetStagingTargetPath() != "" || req.GetSecrets()["k"] != "p" ||
		req.GetVolumeCapability().GetMount().GetFsType() != "xfs" ||
		req.GetVolumeContext()["size"] != "1" ||
		req.GetVolumeContext()["csi.storage.k8s.io/ephemeral"] != "true" ||
		req.GetTargetPath() != filepath.Join(dir, "volumes/kubernetes.io~csi/scratch/mount") {
		t.Errorf("published %v", req)
	}
	if data := n.data("pods/u/volumes/kubernetes.io~csi/scratch"); data["volumeLifecycleMode"] != "Ephemeral" ||
		data["specVolID"] != "scratch" || data["volumeHandle"] != req.GetVolumeId() {
		t.Errorf("recorded %v", data)
	}
	mounts, err := n.Containers.Mounts(t.Context(), pod, &pod.Spec.Containers[0], Start{})
	if err != nil || mounts[0].GetHostPath() != req.GetTargetPath() || !mounts[0].GetReadonly() {
		t.Errorf("mounted %v, %v", mounts, err)
	}
	n.start()
	if used := n.mounts.InUse(); len(used) > 0 { // it is not attached, so it cannot be detached
		t.Errorf("in use %q", used)
	}
	n.driver.Forget()
	tearDown(t, n, "u")
	n.did("its end", csitest.Unpublish)
}

// A volume of an in-tree type is one of the driver that took it over, from a PVC and in a pod.
func TestInTreeNames(t *testing.T) {
	for name, test := range map[string]struct {
		driver string
		inline v1.VolumeSource
		bound  v1.PersistentVolumeSource
	}{
		"awsElasticBlockStore": {"ebs.csi.aws.com",
			v1.VolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}},
			v1.PersistentVolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{
				VolumeID: "vol-1"}}},
		"gcePersistentDisk": {"pd.csi.storage.gke.io",
			v1.VolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "d"}},
			v1.PersistentVolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "d"}}},
		"azureDisk": {"disk.csi.azure.com",
			v1.VolumeSource{AzureDisk: &v1.AzureDiskVolumeSource{DiskName: "d", DataDiskURI: "/u"}},
			v1.PersistentVolumeSource{AzureDisk: &v1.AzureDiskVolumeSource{DiskName: "d",
				DataDiskURI: "/u"}}},
		"azureFile": {"file.csi.azure.com",
			v1.VolumeSource{AzureFile: &v1.AzureFileVolumeSource{SecretName: "s", ShareName: "d"}},
			v1.PersistentVolumeSource{AzureFile: &v1.AzureFilePersistentVolumeSource{SecretName: "s",
				ShareName: "d"}}},
		"cinder": {"cinder.csi.openstack.org",
			v1.VolumeSource{Cinder: &v1.CinderVolumeSource{VolumeID: "d"}},
			v1.PersistentVolumeSource{Cinder: &v1.CinderPersistentVolumeSource{VolumeID: "d"}}},
		"vsphereVolume": {"csi.vsphere.vmware.com",
			v1.VolumeSource{VsphereVolume: &v1.VsphereVirtualDiskVolumeSource{VolumePath: "d"}},
			v1.PersistentVolumeSource{VsphereVolume: &v1.VsphereVirtualDiskVolumeSource{VolumePath: "d"}}},
		"portworxVolume": {"pxd.portworx.com",
			v1.VolumeSource{PortworxVolume: &v1.PortworxVolumeSource{VolumeID: "d"}},
			v1.PersistentVolumeSource{PortworxVolume: &v1.PortworxVolumeSource{VolumeID: "d"}}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newDisk(t, stages)
			n.pvcs.volumes["pv"].Spec.PersistentVolumeSource = test.bound
			n.pvcs.volumes["pv"].Spec.ClaimRef.Namespace = "shop"
			want := "driver name " + test.driver + " not found in the list of registered CSI drivers"
			pods := []*v1.Pod{diskPod("w"), podWith(v1.Volume{Name: "v", VolumeSource: test.inline})}
			for _, pod := range pods {
				err := n.SetUp(t.Context(), pod)
				if err == nil || !strings.HasSuffix(err.Error(), want) {
					t.Errorf("%s: %v, want %s", pod.UID, err, want)
				}
			}
			if used := n.mounts.InUse(); len(used) == 0 ||
				!strings.HasPrefix(used[0], "kubernetes.io/csi/"+test.driver+"^") {
				t.Errorf("in use %q", used)
			}
		})
	}
}

// The files of a volume are given to the pod's group by the driver if it can, else by the agent as
// the driver's object says.
func TestDiskGroups(t *testing.T) {
	policy := func(p storagev1.FSGroupPolicy) *storagev1.CSIDriver {
		return &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{FSGroupPolicy: &p,
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}}}
	}
	const once, many = v1.ReadWriteOnce, v1.ReadWriteMany
	for name, test := range map[string]struct {
		can      bool
		object   *storagev1.CSIDriver
		mode     v1.PersistentVolumeAccessMode
		fsType   string
		readOnly bool
		given    bool
	}{
		"no object":                 {mode: once, fsType: "ext4", given: true},
		"no object, many writers":   {mode: many, fsType: "ext4"},
		"no object, no file system": {mode: once},
		"read only":                 {mode: once, fsType: "ext4", readOnly: true},
		"by the driver":             {can: true, mode: once, fsType: "ext4"},
		"policy None":               {object: policy(storagev1.NoneFSGroupPolicy), mode: once, fsType: "ext4"},
		"policy File, many writers": {object: policy(storagev1.FileFSGroupPolicy), mode: many, given: true},
		"policy by type and mode":   {object: policy(storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy), mode: once, fsType: "ext4", given: true},
		"policy by type, many":      {object: policy(storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy), mode: many, fsType: "ext4"},
	} {
		t.Run(name, func(t *testing.T) {
			can := []csipb.NodeServiceCapability_RPC_Type{stages}
			if test.can {
				can = append(can, groups)
			}
			n := newDisk(t, can...)
			n.objects.change(func(o *diskObjects) { o.object = test.object })
			pv := n.pvcs.volumes["pv"]
			pv.Spec.AccessModes, pv.Spec.CSI.FSType = []v1.PersistentVolumeAccessMode{test.mode}, test.fsType
			pod := diskPod("u")
			pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To[int64](4711)}
			pod.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = test.readOnly
			dir := setUp(t, n.Volumes, pod)
			reported := map[string]bool{}
			for _, c := range n.driver.Calls(csitest.Stage, csitest.Publish) {
				type capable interface {
					GetVolumeCapability() *csipb.VolumeCapability
				}
				reported[c.Request.(capable).GetVolumeCapability().GetMount().GetVolumeMountGroup()] = true
			}
			want := map[string]bool{"": true}
			if test.can {
				want = map[string]bool{"4711": true}
			}
			if !maps.Equal(reported, want) {
				t.Errorf("the driver was told %v", reported)
			}
			gid, err := groupAt(filepath.Join(dir, "volumes/kubernetes.io~csi/pv/mount"))
			if err != nil || (gid == 4711) != (test.given && os.Geteuid() == 0) {
				t.Errorf("group %d, %v", gid, err)
			}
		})
	}
}

// Each access mode has CSI's name, which tells one writer of a node from several only to drivers that
// know the difference.
func TestAccessModes(t *testing.T) {
	type mode = csipb.VolumeCapability_AccessMode_Mode
	for from, want := range map[v1.PersistentVolumeAccessMode][2]mode{
		v1.ReadWriteOnce: {csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
			csipb.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
		v1.ReadWriteOncePod: {csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
			csipb.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER},
		v1.ReadOnlyMany: {csipb.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
			csipb.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY},
		v1.ReadWriteMany: {csipb.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER,
			csipb.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
	} {
		for i, can := range [][]csipb.NodeServiceCapability_RPC_Type{{}, {multi}} {
			n := newDisk(t, can...)
			n.pvcs.volumes["pv"].Spec.AccessModes = []v1.PersistentVolumeAccessMode{from, v1.ReadWriteMany}
			setUp(t, n.Volumes, diskPod("u"))
			req := request[*csipb.NodePublishVolumeRequest](n, csitest.Publish)
			if got := req.GetVolumeCapability().GetAccessMode().GetMode(); got != want[i] {
				t.Errorf("%s is %v, want %v", from, got, want[i])
			}
			n.did("without stages", csitest.Publish)
		}
	}
}

// A volume whose driver wants that is published again while its pod runs, also for the next run of
// the agent; one that fails then stays as it is.
func TestDiskPublishedAgain(t *testing.T) {
	n := newDisk(t, stages)
	n.objects.has(&storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{
		RequiresRepublish:    ptr.To(true),
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}}})
	pod := diskPod("u")
	now := time.Now()
	setUp(t, n.Volumes, pod)
	again := n.Due(pod, now)
	if !again.After(now) {
		t.Errorf("due %v", again)
	}
	n.driver.Forget()
	if err := n.Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	n.did("its time has come", csitest.Publish)
	n.start()
	n.eventually("the next run to know", func() bool { return n.Due(pod, now).Equal(now) })
	n.driver.Fault(csitest.Publish, csitest.Fault{Err: refusal(), Count: 1})
	if err := n.Update(t.Context(), pod); err == nil {
		t.Error("no error")
	}
	if mounted, err := n.node.isMounted(filepath.Join(n.node.root, publishDir, "mount")); !mounted || err != nil {
		t.Errorf("after that it is mounted: %t, %v", mounted, err)
	}
	if diff := cmp.Diff("pv", n.data(publishDir)["specVolID"]); diff != "" {
		t.Error(diff)
	}
}

// A volume that a pod's spec does not have any more is unpublished.
func TestDiskThatThePodDropped(t *testing.T) {
	n := newDisk(t, stages)
	setUp(t, n.Volumes, diskPod("u"))
	pod := diskPod("u")
	pod.Spec.Volumes, pod.Spec.Containers[0].VolumeMounts = nil, nil
	n.driver.Forget()
	setUp(t, n.Volumes, pod)
	n.unstaged()
	n.did("it was dropped", csitest.Unpublish, csitest.Unstage)
}

// What is on disk of another program's is left alone, and does not keep the rest from being found.
func TestDiskRecordsThatCannotBeRead(t *testing.T) {
	n := newDisk(t, stages)
	setUp(t, n.Volumes, diskPod("u"))
	for _, at := range []string{"pods/x/volumes/kubernetes.io~csi/pv", "plugins/kubernetes.io/csi/d/s"} {
		dir := filepath.Join(n.node.root, at)
		if err := os.MkdirAll(dir, 0o750); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "vol_data.json"), `{"driverName":`)
	}
	n.start()
	if used := n.mounts.InUse(); !slices.Equal(used, []string{csi.Key{Driver: csitest.Name,
		Handle: "vol-1"}.Name()}) {
		t.Errorf("in use %q", used)
	}
	tearDown(t, n, "x") // nothing is mounted there
	tearDown(t, n, "u")
}
