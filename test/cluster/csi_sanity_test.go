package cluster_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/numalet/numalet/cmd/numalet-lab/csidriver"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
	"github.com/numalet/numalet/test/scratch"
)

// TestCSISanity: the tests' own CSI driver passes csi-test's suite.
func TestCSISanity(t *testing.T) {
	binaries, dir := rig.Sidecars(t), scratch.Dir(t)
	d, err := csidriver.New(csidriver.Config{Name: "sane.csi.test", Node: "sane", Dir: dir,
		Socket: filepath.Join(dir, "csi.sock"), Topology: map[string]string{"rack": "r1"}, MaxVolumes: 7})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := csidriver.Sweep(dir); err != nil {
			t.Error(err)
		}
	})
	harness.Eventually(t, "the driver serves", func() error {
		_, err := os.Stat(filepath.Join(dir, "csi.sock"))
		return err
	})
	limited, stop := context.WithTimeout(ctx, 3*time.Minute)
	defer stop()
	out, err := exec.CommandContext(limited, filepath.Join(binaries, "csi-sanity"),
		"--csi.endpoint="+filepath.Join(dir, "csi.sock"), "--csi.mountdir="+filepath.Join(dir, "target"),
		"--csi.stagingdir="+filepath.Join(dir, "staging"), "--ginkgo.no-color").CombinedOutput()
	if err != nil {
		t.Errorf("csi-sanity: %v\n%s", err, out)
	}
	if left := csidriver.Loops(dir); len(left) > 0 {
		t.Errorf("after all tests there are the loop devices %v", left)
	}
}
