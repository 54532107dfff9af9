package conformance

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/test/containerd/rig"
	"github.com/numalet/numalet/test/scratch"
)

func TestContainerd(t *testing.T) {
	cgroup := scratch.Cgroup("conformance")
	t.Cleanup(func() { removeCgroup(t, cgroup) }) // after containerd has stopped
	daemon := rig.Containerd(t)
	client, err := cri.Connect(t.Context(), cri.Config{RuntimeEndpoint: daemon.Endpoint()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	cpus, fewer := "0", "0"
	if runtime.NumCPU() > 1 {
		cpus, fewer = "0-1", "1"
	}
	Run(t, client, Options{
		Endpoint:    daemon.Endpoint(),
		Image:       containerd.WorkImage,
		Forever:     []string{"--exit=0", "--after=1h"},
		Stubborn:    []string{"--ignore-term"},
		Exit:        func(code int) []string { return []string{fmt.Sprintf("--exit=%d", code)} },
		AsArguments: true,
		Settle:      300 * time.Millisecond,
		CPUs:        cpus,
		FewerCPUs:   fewer,
		Wait:        2 * time.Minute,

		CgroupParent: cgroup,
	})
}

// removeCgroup removes the pods' parent cgroup, which the runtime creates and leaves behind, from
// every mounted hierarchy, with the cgroups of containers whose start was given up: containerd leaves
// these, without processes. The test fails if anything else is left in it.
func removeCgroup(t *testing.T, parent string) {
	for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		dirs, err := filepath.Glob(pattern + parent)
		if err != nil {
			t.Error(err)
		}
		for _, dir := range dirs {
			left, err := filepath.Glob(dir + "/*/cgroup.procs")
			if err != nil {
				t.Error(err)
			}
			for _, procs := range left {
				remove(t, filepath.Dir(procs))
			}
			remove(t, dir)
		}
	}
}

// remove removes a cgroup that has no processes and no children.
func remove(t *testing.T, dir string) {
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
