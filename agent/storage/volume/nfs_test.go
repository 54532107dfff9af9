package volume

import (
	"os"
	"path/filepath"
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
		mounts, err := v.Containers.Mounts(t.Context(), pod, &pod.Spec.Containers[0], Start{})
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
	for _, volume := range []v1.Volume{exported("-T/evil", "/x", false), pvcVolume("data")} {
		v, mounter := newVolumes(t, Config{PVCs: s})
		err := v.SetUp(t.Context(), podWith(volume))
		if err == nil || len(mounter.MountPoints) > 0 ||
			!strings.Contains(err.Error(), "mount -T/evil:/x: what is mounted cannot begin with '-'") {
			t.Errorf("%v, mounted %v", err, mounter.MountPoints)
		}
	}
}

// TestMounterPath: the program mounts NFS volumes and no others, as mount would be called.
func TestMounterPath(t *testing.T) {
	dir := t.TempDir()
	program, called := filepath.Join(dir, "mounter"), filepath.Join(dir, "called")
	script := "#!/bin/sh\necho \"$@\" >> " + called + "\n"
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	v, err := New(alone(Config{Root: filepath.Join(dir, "root"), Makers: Makers{MounterPath: program}}))
	if err != nil {
		t.Fatal(err)
	}
	if err := v.node.mount("server:/x", dir, "nfs", []string{"ro"}); err != nil {
		t.Fatal(err)
	}
	if err := v.node.mount(filepath.Join(dir, "none"), filepath.Join(dir, "nor"), "ext4", nil); err == nil {
		t.Error("what is not there was mounted")
	}
	got, err := os.ReadFile(called)
	if want := "mount -t nfs -o ro server:/x " + dir + "\n"; string(got) != want || err != nil {
		t.Errorf("called with %q, want %q (%v)", got, want, err)
	}
}
