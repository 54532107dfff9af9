package volume

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func exported(server, path string, readOnly bool) v1.Volume {
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{
		NFS: &v1.NFSVolumeSource{Server: server, Path: path, ReadOnly: readOnly}}}
}

// An export in a pod's spec is mounted as it says, and containers get that.
func TestExportsOfPods(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		v, mounter := newVolumes(t, Config{})
		pod := podWith(exported("fd00::1", "/x", readOnly))
		setUp(t, v, pod)
		if len(mounter.MountPoints) != 1 || mounter.MountPoints[0].Device != "[fd00::1]:/x" ||
			mounter.MountPoints[0].Type != "nfs" ||
			slices.Contains(mounter.MountPoints[0].Opts, "ro") != readOnly {
			t.Errorf("read only %v: mounted %+v", readOnly, mounter.MountPoints)
		}
		mounts, err := v.Mounts(t.Context(), pod, &pod.Spec.Containers[0], Start{})
		if err != nil || mounts[0].Readonly != readOnly {
			t.Errorf("read only %v: the container mounts %v, %v", readOnly, mounts, err)
		}
	}
}

// A pod passes no options to mount(8): with -T it would read mounts from a file of the pod.
func TestSourcesThatAreOptions(t *testing.T) {
	s := bind(localAt(t.TempDir()))
	s.volumes["pv"].Spec.PersistentVolumeSource = v1.PersistentVolumeSource{
		NFS: &v1.NFSVolumeSource{Server: "-T/evil", Path: "/x"}}
	for _, volume := range []v1.Volume{exported("-T/evil", "/x", false), claimVolume("data")} {
		v, mounter := newVolumes(t, Config{Claims: s})
		err := v.SetUp(t.Context(), podWith(volume))
		if err == nil || len(mounter.MountPoints) > 0 ||
			!strings.Contains(err.Error(), "mount -T/evil:/x: what is mounted cannot begin with '-'") {
			t.Errorf("%v, mounted %v", err, mounter.MountPoints)
		}
	}
}
