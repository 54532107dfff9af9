package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/mount-utils"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cri"
)

// storage has PVCs and persistent volumes by name.
type storage struct {
	pvcs    map[string]*v1.PersistentVolumeClaim
	volumes map[string]*v1.PersistentVolume
	away    bool   // it does not answer
	refuses string // it does not tell of that PVC, or volume
}

func (s *storage) PVC(_ context.Context, _, name string) (*v1.PersistentVolumeClaim, error) {
	if s.away {
		return nil, errors.New("connection refused")
	}
	if name == s.refuses {
		return nil, apierrors.NewForbidden(v1.Resource("persistentvolumeclaims"), name, nil)
	}
	if c, has := s.pvcs[name]; has {
		return c, nil
	}
	return nil, apierrors.NewNotFound(v1.Resource("persistentvolumeclaims"), name)
}

func (s *storage) PersistentVolume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	if s.away {
		return nil, errors.New("connection refused")
	}
	if name == s.refuses {
		return nil, apierrors.NewForbidden(v1.Resource("persistentvolumes"), name, nil)
	}
	if p, has := s.volumes[name]; has {
		return p, nil
	}
	return nil, apierrors.NewNotFound(v1.Resource("persistentvolumes"), name)
}

func (s *storage) UpdatePVC(_ context.Context, was, is *v1.PersistentVolumeClaim) (
	*v1.PersistentVolumeClaim, error) {
	s.pvcs[was.Name] = is
	return is, nil
}

// bind adds the PVC data and the volume pv that it is bound to.
func bind(source v1.PersistentVolumeSource) *storage {
	pvc := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: "shop", UID: "c"},
		Spec:       v1.PersistentVolumeClaimSpec{VolumeName: "pv"},
		Status:     v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
	}
	return &storage{
		pvcs: map[string]*v1.PersistentVolumeClaim{"data": pvc},
		volumes: map[string]*v1.PersistentVolume{"pv": {
			ObjectMeta: metav1.ObjectMeta{Name: "pv"},
			Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: source,
				ClaimRef: &v1.ObjectReference{Namespace: "shop", Name: "data", UID: "c"}},
		}},
	}
}

func localAt(path string) v1.PersistentVolumeSource {
	return v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: path}}
}

func pvcVolume(name string) v1.Volume {
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name},
	}}
}

// A PVC that cannot be used has an error in the kubelet's words, and nothing is mounted.
func TestPVCsThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	write(t, file, "")
	const processing = "Unable to attach or mount volumes: unmounted volumes=[v], unattached " +
		"volumes=[], failed to process volumes=[v]: error processing PVC shop/data: "
	never := &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{
		{MatchExpressions: []v1.NodeSelectorRequirement{
			{Key: "zone", Operator: v1.NodeSelectorOpIn, Values: []string{"b"}}}}}}}
	for name, test := range map[string]struct {
		change func(*storage, *v1.PersistentVolumeClaim, *v1.PersistentVolume)
		want   string
	}{
		"no claim": {func(s *storage, _ *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) {
			delete(s.pvcs, "data")
		}, processing + `failed to fetch PVC from API server: persistentvolumeclaims "data" not found`},
		"not bound": {func(_ *storage, c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) {
			c.Status.Phase = v1.ClaimPending
		}, processing + "PVC is not bound"},
		"lost": {func(_ *storage, c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) {
			c.Status.Phase = v1.ClaimLost
		}, processing + "PVC is not bound"},
		"bound to nothing": {func(_ *storage, c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) {
			c.Spec.VolumeName = ""
		}, processing + "PVC has empty pvc.Spec.VolumeName"},
		"being deleted": {func(_ *storage, c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) {
			c.DeletionTimestamp = ptr.To(metav1.Now())
		}, processing + "PVC is being deleted"},
		"no volume": {func(s *storage, _ *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) {
			delete(s.volumes, "pv")
		}, processing + `failed to fetch PV pv from API server: persistentvolumes "pv" not found`},
		"a volume of nobody": {func(_ *storage, _ *v1.PersistentVolumeClaim, p *v1.PersistentVolume) {
			p.Spec.ClaimRef = nil
		}, processing + "found PV object pv but it has a nil pv.Spec.ClaimRef indicating it is not " +
			"yet bound to the claim"},
		"another's volume": {func(_ *storage, _ *v1.PersistentVolumeClaim, p *v1.PersistentVolume) {
			p.Spec.ClaimRef.UID = "other"
		}, processing + "found PV object pv but its pv.Spec.ClaimRef.UID other does not point to " +
			"claim.UID c"},
		"a block device": {func(_ *storage, _ *v1.PersistentVolumeClaim, p *v1.PersistentVolume) {
			p.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock)
		}, processing + "volume v has volumeMode Block, but is specified in volumeMounts"},
		"the API server is away": {func(s *storage, _ *v1.PersistentVolumeClaim,
			_ *v1.PersistentVolume) {
			s.away = true
		}, processing + "failed to fetch PVC from API server: connection refused"},
		"of another type": {func(_ *storage, _ *v1.PersistentVolumeClaim, p *v1.PersistentVolume) {
			p.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{
				FlexVolume: &v1.FlexPersistentVolumeSource{}}
		}, `persistent volume "pv": a volume of type flexVolume is not supported, and the pod does not ` +
			`start: Kubernetes has deprecated it; use the CSI driver of the storage's vendor, by csi or ` +
			`persistentVolumeClaim`},
		"for another node": {func(_ *storage, _ *v1.PersistentVolumeClaim, p *v1.PersistentVolume) {
			p.Spec.NodeAffinity = never
		}, `MountVolume.NodeAffinity check failed for volume "pv" : no matching NodeSelectorTerms`},
		"options of a host path": {func(_ *storage, _ *v1.PersistentVolumeClaim,
			p *v1.PersistentVolume) {
			p.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{
				HostPath: &v1.HostPathVolumeSource{Path: dir}}
			p.Spec.MountOptions = []string{"noatime"}
		}, `MountVolume.MountOptionSupport check failed for volume "pv" : mount options are not ` +
			`supported for this volume type`},
		"no directory": {func(_ *storage, _ *v1.PersistentVolumeClaim, p *v1.PersistentVolume) {
			p.Spec.Local.Path = file
		}, `MountVolume.SetUp failed for volume "pv" : local path ` + file + ` is no directory ` +
			`and no block device`},
		"a path up": {func(_ *storage, _ *v1.PersistentVolumeClaim, p *v1.PersistentVolume) {
			p.Spec.Local.Path = dir + "/../x"
		}, `MountVolume.SetUp failed for volume "pv" : invalid path: ` + dir + `/../x must not ` +
			`contain '..'`},
		"a name that is a path": {func(_ *storage, _ *v1.PersistentVolumeClaim,
			p *v1.PersistentVolume) {
			p.Name = "../x"
		}, processing + `persistent volume name "../x" cannot be part of a path`},
	} {
		t.Run(name, func(t *testing.T) {
			s := bind(localAt(dir))
			test.change(s, s.pvcs["data"], s.volumes["pv"])
			v, mounter := newVolumes(t, Config{PVCs: s, Labels: func() map[string]string {
				return map[string]string{"zone": "a"}
			}})
			err := v.SetUp(t.Context(), podWith(pvcVolume("data")))
			if err == nil || err.Error() != test.want {
				t.Errorf("got %v,\nwant %s", err, test.want)
			}
			if len(mounter.MountPoints) > 0 {
				t.Errorf("mounted %v", mounter.MountPoints)
			}
			want := test.want
			if strings.HasPrefix(want, "MountVolume.SetUp failed") { // seen only by mounting
				want = ""
			}
			unknown, err := v.Lacking(t.Context(), podWith(pvcVolume("data")))
			if (err == nil) != (want == "") || err != nil && err.Error() != want || unknown != s.away {
				t.Errorf("before that %v, unknown %t", err, unknown)
			}
		})
	}
}

// If the API server does not answer or forbids it, a PVC is unknown, unless another one is
// missing.
func TestPVCsOfWhichNothingIsKnown(t *testing.T) {
	s := bind(localAt(t.TempDir()))
	s.refuses = "secret"
	v, _ := newVolumes(t, Config{PVCs: s})
	secret := pvcVolume("secret")
	secret.Name = "w"
	if unknown, err := v.Lacking(t.Context(), podWith(pvcVolume("data"), secret)); !unknown ||
		err == nil || !strings.Contains(err.Error(), "volumes=[w]") {
		t.Errorf("got %t, %v", unknown, err)
	}
	delete(s.pvcs, "data")
	if unknown, err := v.Lacking(t.Context(), podWith(pvcVolume("data"), secret)); unknown ||
		err == nil || !strings.Contains(err.Error(), "volumes=[v]") {
		t.Errorf("got %t, %v", unknown, err)
	}
	if HasPVCs(&v1.Pod{}) || !HasPVCs(podWith(secret)) {
		t.Error("it is not seen whether a pod has claims")
	}
}

// Each type is mounted with its options in the kubelet's place, and the container gets that.
func TestPersistentVolumes(t *testing.T) {
	dir := t.TempDir()
	for name, test := range map[string]struct {
		source   v1.PersistentVolumeSource
		options  []string
		readOnly bool
		mounted  []string // "TYPE OPTIONS DEVICE"
		path     string   // below the pod's directory, or absolute
	}{
		"local": {localAt(dir), []string{"noatime", "nodev", "noatime"}, false,
			[]string{" bind,noatime,nodev " + dir}, "volumes/kubernetes.io~local-volume/pv"},
		"local, read only": {localAt(dir), nil, true, []string{" bind,ro " + dir},
			"volumes/kubernetes.io~local-volume/pv"},
		"nfs": {v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{Server: "s", Path: "/x"}},
			[]string{"vers=4"}, false, []string{"nfs vers=4 s:/x"}, "volumes/kubernetes.io~nfs/pv"},
		"nfs, read only": {v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{Server: "fd00::1",
			Path: "/x"}}, nil, true, []string{"nfs ro [fd00::1]:/x"}, "volumes/kubernetes.io~nfs/pv"},
		"host path": {v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: dir}},
			nil, true, nil, dir},
	} {
		t.Run(name, func(t *testing.T) {
			s := bind(test.source)
			s.volumes["pv"].Spec.MountOptions = test.options
			s.volumes["pv"].Annotations = map[string]string{gidAnnotation: "77"}
			v, mounter := newVolumes(t, Config{PVCs: s})
			pod := podWith(pvcVolume("data"))
			pod.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = test.readOnly
			podDir := setUp(t, v, pod)
			setUp(t, v, pod) // nothing is left to do
			var mounted []string
			for _, m := range mounter.MountPoints {
				mounted = append(mounted, m.Type+" "+strings.Join(m.Opts, ",")+" "+m.Device)
			}
			if diff := cmp.Diff(test.mounted, mounted); diff != "" {
				t.Error("-want +got:\n", diff)
			}
			path := test.path
			if !filepath.IsAbs(path) {
				path = filepath.Join(podDir, path)
			}
			// The next run of the agent knows it, even while the API server is away.
			s.away = true
			again, err := New(alone(Config{Root: v.node.root, Mounter: mounter, PVCs: s}))
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range []*Volumes{v, again} {
				setUp(t, v, pod)
				got, err := v.Containers.Mounts(t.Context(), pod, &pod.Spec.Containers[0], Start{})
				if err != nil || len(got) != 1 || got[0].HostPath != path ||
					got[0].Readonly != test.readOnly {
					t.Errorf("the container gets %v, %v", got, err)
				}
				if got := v.Containers.Groups(pod); !slices.Equal(got, []int64{77}) {
					t.Errorf("groups %v", got)
				}
			}
			if len(mounter.MountPoints) != len(test.mounted) {
				t.Errorf("mounted %v", mounter.MountPoints)
			}
			if err := again.TearDown(t.Context(), pod.UID); err != nil ||
				len(mounter.MountPoints) != 0 || len(again.node.pvcs.pods) != 0 {
				t.Errorf("%v; still mounted: %v", err, mounter.MountPoints)
			}
			if _, err := os.Stat(dir); err != nil {
				t.Error(err)
			}
		})
	}
}

// A PVC of an ephemeral volume has to be the pod's own.
func TestEphemeralPVCs(t *testing.T) {
	s := bind(localAt(t.TempDir()))
	pvc := s.pvcs["data"]
	s.pvcs = map[string]*v1.PersistentVolumeClaim{"web-v": pvc}
	pvc.Name = "web-v"
	pod := podWith(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{
		Ephemeral: &v1.EphemeralVolumeSource{}}})
	v, mounter := newVolumes(t, Config{PVCs: s})
	err := v.SetUp(t.Context(), pod)
	if err == nil || !strings.Contains(err.Error(), "was not created for pod") {
		t.Errorf("another's claim: %v", err)
	}
	pvc.OwnerReferences = []metav1.OwnerReference{{UID: pod.UID, Controller: ptr.To(true)}}
	setUp(t, v, pod)
	if len(mounter.MountPoints) != 1 {
		t.Errorf("mounted %v", mounter.MountPoints)
	}
}

// A PVC that is being deleted stays usable for its pods.
func TestPVCInUseIsKept(t *testing.T) {
	s := bind(localAt(t.TempDir()))
	s.pvcs["data"].DeletionTimestamp = ptr.To(metav1.Now())
	s.pvcs["data"].Finalizers = []string{pvcProtection}
	v, _ := newVolumes(t, Config{PVCs: s})
	setUp(t, v, podWith(pvcVolume("data")))
}

// With ReadWriteOncePod as its only mode a volume belongs to one pod until that is gone, across
// restarts; with another mode beside it, several pods can use it.
func TestReadWriteOncePod(t *testing.T) {
	for _, source := range []v1.PersistentVolumeSource{localAt(t.TempDir()),
		{HostPath: &v1.HostPathVolumeSource{Path: "/"}}} {
		s := bind(source)
		s.volumes["pv"].Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
		v, mounter := newVolumes(t, Config{PVCs: s})
		first, second := podWith(pvcVolume("data")), podWith(pvcVolume("data"))
		second.UID = "u2"
		setUp(t, v, first)
		again, err := New(alone(Config{Root: v.node.root, Mounter: mounter, PVCs: s}))
		if err != nil {
			t.Fatal(err)
		}
		const want = `MountVolume.SetUp failed for volume "pv" : volume uses the ReadWriteOncePod ` +
			`access mode and is already in use by another pod`
		var lacks *cri.ObjectError
		err = again.SetUp(t.Context(), second)
		if err == nil || err.Error() != want || !errors.As(err, &lacks) {
			t.Errorf("got %v", err)
		}
		setUp(t, again, first)
		if err := again.TearDown(t.Context(), first.UID); err != nil {
			t.Fatal(err)
		}
		setUp(t, again, second)
		s.volumes["pv"].Spec.AccessModes = append(s.volumes["pv"].Spec.AccessModes,
			v1.ReadOnlyMany)
		again.node.pvcs.pods = map[types.UID]map[string]BoundPVC{}
		setUp(t, again, second)
		setUp(t, again, first)
	}
}

// If a PVC is bound to another volume, that takes the place of the old one; while it is bound to
// nothing, the old one stays.
func TestReboundPVC(t *testing.T) {
	s := bind(localAt(t.TempDir()))
	v, mounter := newVolumes(t, Config{PVCs: s})
	pod := podWith(pvcVolume("data"), empty("e", "Memory"))
	setUp(t, v, pod)
	s.pvcs["data"].Status.Phase = v1.ClaimPending
	if err := v.SetUp(t.Context(), pod); err == nil || len(mounter.MountPoints) != 2 {
		t.Errorf("%v, mounted %v", err, mounter.MountPoints)
	}
	other := s.volumes["pv"].DeepCopy()
	other.Name = "pv2"
	s.volumes["pv2"], s.pvcs["data"].Spec.VolumeName = other, "pv2"
	s.pvcs["data"].Status.Phase = v1.ClaimBound
	setUp(t, v, pod)
	var names []string
	for _, m := range mounter.MountPoints {
		names = append(names, filepath.Base(m.Path))
	}
	if slices.Sort(names); !slices.Equal(names, []string{"e", "pv2"}) {
		t.Errorf("mounted %q", names)
	}
}

// The first pod of a local volume gives the volume to its group, links too but not their targets. A
// pod that comes while it is in use does not, and gets an event. OnRootMismatch looks at the root
// alone.
func TestFSGroupOfLocalVolumes(t *testing.T) {
	requireRoot(t)
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	write(t, outside, "")
	write(t, dir+"/deep/file", "")
	symlink(t, outside, dir+"/link")
	var reported []string
	s := bind(localAt(dir))
	// The test looks at what is mounted, so the mount is a link here.
	v, _ := newVolumes(t, Config{PVCs: s, Mounter: linking{mount.NewFakeMounter(nil)},
		Ends: Ends{Tell: func(_ runtime.Object, _, reason, message string) {
			reported = append(reported, reason+" "+message)
		}}})
	pod := podWith(pvcVolume("data"))
	group := func(pod *v1.Pod, id int64, policy v1.PodFSGroupChangePolicy) {
		pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &id, FSGroupChangePolicy: &policy}
	}
	is := func(path string, gid uint32, mode uint32) {
		t.Helper()
		var stat unix.Stat_t
		if err := unix.Lstat(path, &stat); err != nil {
			t.Fatal(err)
		}
		if stat.Gid != gid || mode != 0 && stat.Mode&0o7777 != mode {
			t.Errorf("%s has group %d and mode %o, want %d and %o", path, stat.Gid,
				stat.Mode&0o7777, gid, mode)
		}
	}
	group(pod, 4711, v1.FSGroupChangeAlways)
	setUp(t, v, pod)
	is(dir+"/deep", 4711, 0o2775)
	is(dir+"/deep/file", 4711, 0o664)
	is(dir+"/link", 4711, 0)
	is(outside, uint32(os.Getgid()), 0o644)
	other := podWith(pvcVolume("data"))
	other.UID = "u2"
	group(other, 4712, v1.FSGroupChangeAlways)
	setUp(t, v, other)
	is(dir+"/deep/file", 4711, 0o664)
	want := "AlreadyMountedVolume The requested fsGroup is 4712, but the volume pv has GID 4711. " +
		"The volume may not be shareable."
	if !slices.Equal(reported, []string{want}) {
		t.Errorf("told %q", reported)
	}
	for _, uid := range []types.UID{"u", "u2"} {
		if err := v.TearDown(t.Context(), uid); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(dir+"/deep/file", -1, 1); err != nil {
		t.Fatal(err)
	}
	group(pod, 4711, v1.FSGroupChangeOnRootMismatch)
	setUp(t, v, pod)
	is(dir+"/deep/file", 1, 0)
	if err := v.TearDown(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	group(pod, 4713, v1.FSGroupChangeOnRootMismatch)
	setUp(t, v, pod)
	is(dir+"/deep/file", 4713, 0)
}

// A mount that was made since the pod's directory was looked at is not made again.
func TestMountIsMadeOnce(t *testing.T) {
	share := v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{
		NFS: &v1.NFSVolumeSource{Server: "s", Path: "/x"}}}
	dir := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"},
		Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: localAt(t.TempDir())}}
	for _, u := range []used{{volume: share, plugin: nfs()}, {plugin: locals(), pv: dir}} {
		v, mounter := newVolumes(t, Config{})
		pod := podWith(share)
		podDir, err := v.node.podDir(pod.UID)
		if err != nil {
			t.Fatal(err)
		}
		looked := newTarget(pod, podDir, []used{u}, nil, u.place())
		for range 2 {
			if _, err := u.plugin.setUp(t.Context(), v.makers, looked); err != nil {
				t.Error(err)
			}
		}
		if len(mounter.MountPoints) != 1 {
			t.Errorf("%s: mounted %v", u.plugin.name, mounter.MountPoints)
		}
	}
}

// A mount that hangs blocks its own pod until the timeout, and no other; once it returns the pod
// goes on, and the volume was mounted once.
func TestMountThatHangs(t *testing.T) {
	release := make(chan struct{})
	mounter := &hanging{FakeMounter: mount.NewFakeMounter(nil), release: release}
	v, _ := newVolumes(t, Config{Mounter: mounter})
	share := v1.Volume{Name: "share", VolumeSource: v1.VolumeSource{
		NFS: &v1.NFSVolumeSource{Server: "gone", Path: "/x"}}}
	pod, other := podWith(share), podWith(empty("e", "Memory"))
	other.UID = "u2"
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 0)
		err := v.SetUp(ctx, pod)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- v.SetUp(ctx, pod) }()
	<-mounter.began()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	setUp(t, v, other)
	go func() { done <- v.SetUp(context.Background(), pod) }()
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := len(mounter.MountPoints); n != 2 {
		t.Errorf("mounted %v", mounter.MountPoints)
	}
}
