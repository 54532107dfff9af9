package rig

import (
	"context"
	"testing"

	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
	"github.com/numalet/numalet/test/harness"
	"github.com/numalet/numalet/test/scratch"
)

// Node is a node on a containerd of its own, as Containerd starts it, below a cgroup of its own. No
// agent runs yet.
func Node(t *testing.T) (n *harness.Node, d *containerd.Daemon, cgroup string) {
	t.Helper()
	Require(t)
	Alone(t)
	return NodeBeside(t, "node")
}

// NodeBeside is Node in a test that has one already; the name is of no other in the test. By
// systemd there is one at a time, with all cgroups for itself.
func NodeBeside(t *testing.T, name string) (n *harness.Node, d *containerd.Daemon, cgroup string) {
	t.Helper()
	return NodeOnDisk(t, name, func(*testing.T, string) {})
}

// NodeOnDisk is NodeBeside with a function that mounts a disk at containerd's directory, before
// containerd starts. The function's cleanup unmounts it, after containerd has stopped.
func NodeOnDisk(t *testing.T, name string, mount func(*testing.T, string)) (n *harness.Node,
	d *containerd.Daemon, cgroup string) {
	t.Helper()
	if systemdRuns() {
		d = start(t, mount)
		n = harness.NewOn(t, d.Endpoint())
		n.Settings["cgroupsPerQOS"], n.Settings["cgroupDriver"] = true, "systemd"
		return n, d, "/"
	}
	cgroup = scratch.Cgroup(name)
	made := false
	t.Cleanup(func() { // after containerd has stopped
		if !made {
			return
		}
		if err := cgroups.DeleteRoot(context.Background(), cgroup); err != nil {
			t.Error(err)
		}
	})
	d = start(t, mount)
	made = true
	if err := cgroups.CreateRoot(cgroup); err != nil {
		t.Fatal(err)
	}
	n = harness.NewOn(t, d.Endpoint())
	n.Settings["cgroupsPerQOS"], n.Settings["cgroupRoot"] = true, cgroup
	return n, d, cgroup
}
