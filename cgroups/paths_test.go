package cgroups

import (
	"path"
	"testing"
)

// The paths of a pod and of its containers are below the mount point, in both versions.
func TestPaths(t *testing.T) {
	const slice = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice"
	for _, c := range []struct {
		driver        Driver
		pod, dir, all string
	}{
		{Cgroupfs, "/kubepods/besteffort/poda-b", "c0ffee", "/kubepods"},
		{Systemd, slice, "cri-containerd-c0ffee.scope", "/kubepods.slice"},
	} {
		for version, at := range map[string]string{"v1": "/memory", "v2": ""} {
			t.Run(version+c.pod, func(t *testing.T) {
				h := newHost(t)
				if version == "v1" {
					h = h.legacy("cpu", "cpuacct", "cpuset", "memory")
				} else {
					h = h.unified(allControllers)
				}
				tree := h.treeOf(c.driver)
				if none, err := tree.Paths("a-b"); err != nil || none.Pod != "" {
					t.Errorf("before there is one: %+v, %v", none, err)
				}
				h.write(at+path.Join(c.pod, "0ther"), "7")
				h.write(at+path.Join(c.pod, c.dir), "7")
				got, err := tree.Paths("a-b")
				if err != nil || got.Pod != c.pod {
					t.Errorf("pod is at %q, %v, want %q", got.Pod, err, c.pod)
				}
				want := path.Join(c.pod, c.dir)
				if at := got.Container("c0ffee"); at != want {
					t.Errorf("container is at %q, want %q", at, want)
				}
				if at := got.Container("bean"); at != "" {
					t.Errorf("a container without a cgroup is at %q", at)
				}
				if all := tree.PodsPath(); all != c.all {
					t.Errorf("all pods are in %q, want %q", all, c.all)
				}
			})
		}
	}
	if _, err := newHost(t).unified(allControllers).treeOf(Cgroupfs).Paths("../x"); err == nil {
		t.Error("a UID that leads out of the pods is taken")
	}
}

// Shares converted to weights and back are equal except for rounding.
func TestSharesOf(t *testing.T) {
	for shares := uint64(MinShares); shares <= MaxShares; shares += 7 {
		back := SharesOf(Weight(shares))
		if back > shares || shares-back > 27 || Weight(back) > Weight(shares) {
			t.Fatalf("%d shares are weight %d, and that %d shares", shares, Weight(shares), back)
		}
	}
	if lowest, highest := SharesOf(0), SharesOf(20000); lowest != MinShares || highest != MaxShares {
		t.Errorf("out of bounds weights are %d and %d shares", lowest, highest)
	}
}
