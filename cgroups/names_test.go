package cgroups

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestPodPath(t *testing.T) {
	const uid = "0c5a-77_f"
	for _, tc := range []struct {
		driver Driver
		root   string
		class  v1.PodQOSClass
		want   string
	}{
		{Cgroupfs, "", v1.PodQOSGuaranteed, "/kubepods/pod0c5a-77_f"},
		{Cgroupfs, "/", v1.PodQOSBurstable, "/kubepods/burstable/pod0c5a-77_f"},
		{Cgroupfs, "/", v1.PodQOSBestEffort, "/kubepods/besteffort/pod0c5a-77_f"},
		{Cgroupfs, "/a/b-c/", v1.PodQOSGuaranteed, "/a/b-c/kubepods/pod0c5a-77_f"},
		{Systemd, "/", v1.PodQOSGuaranteed, "/kubepods.slice/kubepods-pod0c5a_77_f.slice"},
		{Systemd, "", v1.PodQOSBurstable, "/kubepods.slice/kubepods-burstable.slice/" +
			"kubepods-burstable-pod0c5a_77_f.slice"},
		{Systemd, "", v1.PodQOSBestEffort, "/kubepods.slice/kubepods-besteffort.slice/" +
			"kubepods-besteffort-pod0c5a_77_f.slice"},
		{Systemd, "/a.slice/a-b.slice", v1.PodQOSGuaranteed, "/a.slice/a-b.slice/" +
			"a-b-kubepods.slice/a-b-kubepods-pod0c5a_77_f.slice"},
		{Systemd, "/a", v1.PodQOSGuaranteed,
			"/a.slice/a-kubepods.slice/a-kubepods-pod0c5a_77_f.slice"},
	} {
		root, err := rootGroup(tc.driver, tc.root)
		if err != nil {
			t.Errorf("rootGroup(%s, %q): %v", tc.driver, tc.root, err)
			continue
		}
		if got := podGroup(root, tc.class, uid).path(tc.driver); got != tc.want {
			t.Errorf("%s %q %s: path %s, want %s", tc.driver, tc.root, tc.class, got, tc.want)
		}
	}
	if _, err := rootGroup(Cgroupfs, "/a/../.."); err == nil {
		t.Error("rootGroup takes a path out of the hierarchy")
	}
}

func TestParsePod(t *testing.T) {
	for _, tc := range []struct {
		driver Driver
		dir    string
		want   types.UID
		ok     bool
	}{
		{Cgroupfs, "pod0c5a-77", "0c5a-77", true},
		{Cgroupfs, "pod", "", false},
		{Cgroupfs, "burstable", "", false},
		{Systemd, "kubepods-burstable-pod0c5a_77.slice", "0c5a-77", true},
		{Systemd, "kubepods-pod0c5a_77.slice", "0c5a-77", true},
		{Systemd, "kubepods-burstable.slice", "", false},
		{Systemd, "pod0c5a", "", false},
	} {
		got, ok := parsePod(tc.driver, tc.dir)
		if ok != tc.ok || ok && got != tc.want {
			t.Errorf("parsePod(%s, %s) = %q, %t", tc.driver, tc.dir, got, ok)
		}
	}
}

func TestUIDStaysInside(t *testing.T) {
	h := newHost(t).unified(allControllers, "/kubepods", "/other")
	tree := h.tree(Config{})
	for _, uid := range []string{"", "/../../other", "a/b"} {
		if err := madePod(t.Context(), tree, testPod(uid, ""), PodOptions{}); err == nil {
			t.Errorf("EnsurePod takes UID %q", uid)
		}
		if err := tree.RemovePod(t.Context(), types.UID(uid)); err == nil {
			t.Errorf("RemovePod takes UID %q", uid)
		}
	}
	if !exists(h.mount + "/other") {
		t.Error("a cgroup outside of kubepods was removed")
	}
}
