package volume

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/storage/volume/csi/csitest"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
)

// stays has a pod's end fail, and checks whether the driver was called, and what is said then.
func (n *diskNode) stays(what string, called bool, of types.UID, want string) {
	n.t.Helper()
	err := n.TearDown(n.t.Context(), "u")
	paused, is := errors.AsType[*cri.PausedError](err)
	if !is || paused.Repeated == called || IsUsual(err) == called {
		n.t.Errorf("%s: the pod's end says %v, want a pause after a call: %t", what, err, called)
	}
	n.says(what, of, want)
}

func (n *diskNode) says(what string, of types.UID, want string) {
	n.t.Helper()
	said := strings.Join(n.mounts.Stuck(of), "\n")
	if said = strings.ReplaceAll(said, n.node.root, "ROOT"); said != want {
		n.t.Errorf("%s: it is said\n%s\nwant\n%s", what, said, want)
	}
}

const stuckVolume = "volume pv of driver disk.example.com, handle vol-1, cannot be unpublished since 0s ago, "

// A volume that its driver does not unpublish keeps its pod. The pauses double, what is said names the
// volume, the driver, the call's error and what to do, and the next try sees what was undone by hand.
func TestStuckVolume(t *testing.T) {
	n := newDisk(t, stages)
	n.pauses = await.Pauses{First: 100 * time.Millisecond, Last: time.Hour}
	n.start()
	setUp(t, n.Volumes, diskPod("u"))
	n.says("a pod that stays", "u", "")
	n.driver.Fault(csitest.Unpublish, csitest.Fault{Err: status.Error(codes.Internal, "the disk\nis on fire")})
	const target = "ROOT/" + publishDir + "/mount"
	first := stuckVolume + "1 times, at last: rpc error: code = Internal desc = the disk is on fire; it is " +
		"tried again in 0s. If the driver can never do it, do it in its place, and the next try sees that: " +
		"umount " + target + "; rmdir " + target
	n.stays("the first try", true, "u", first)
	n.stays("at once again", false, "u", first)
	n.eventually("the second try", func() bool {
		return len(n.driver.Calls(csitest.Unpublish)) > 1 ||
			!IsUsual(n.TearDown(t.Context(), "u"))
	})
	n.says("the second try", "u", strings.Replace(first, "1 times", "2 times", 1))
	calls := n.driver.Calls(csitest.Unpublish)
	if pause := calls[1].Began.Sub(calls[0].Began); len(calls) != 2 || pause < 100*time.Millisecond {
		t.Errorf("%d calls, after %v", len(calls), pause)
	}
	path := filepath.Join(n.node.root, publishDir, "mount")
	if err := errors.Join(n.mounter.Unmount(path), os.RemoveAll(path)); err != nil {
		t.Fatal(err)
	}
	n.eventually("the end", func() bool { return n.TearDown(t.Context(), "u") == nil })
	n.says("a pod that is gone", "u", "")
}

// A driver that is away is not called, and a pod that ends is looked at when it registers.
func TestStuckWithoutDriver(t *testing.T) {
	n := newDisk(t, stages)
	n.pauses = await.Pauses{First: time.Hour, Last: time.Hour}
	n.start()
	setUp(t, n.Volumes, diskPod("u"))
	n.driver.Forget()
	n.leave()
	const away = stuckVolume + "1 times, at last: driver name disk.example.com not found in the list of " +
		"registered CSI drivers; it is tried again when the driver disk.example.com registers: start it"
	n.stays("the first try", true, "u", away)
	n.stays("at once again", false, "u", away)
	n.register()
	n.mounts.DriversChanged()
	if !slices.Equal(n.woken, []types.UID{"u"}) {
		t.Errorf("woken are %q", n.woken)
	}
	tearDown(t, n, "u")
	n.unstaged()
	n.did("when it is back", csitest.Unpublish, csitest.Unstage)
}

// A volume that is not unstaged keeps no pod, and is told of.
func TestStuckStage(t *testing.T) {
	n := newDisk(t, stages)
	setUp(t, n.Volumes, diskPod("u"))
	n.driver.Fault(csitest.Unstage, csitest.Fault{Err: status.Error(codes.Internal, "busy")})
	tearDown(t, n, "u")
	n.eventually("what is said", func() bool { return len(n.mounts.Stuck("")) > 0 })
	said := n.mounts.Stuck("")[0]
	for _, want := range []string{"volume vol-1 of driver disk.example.com cannot be unstaged from " + n.node.root,
		"times, at last: kubernetes.io/csi: attacher.UnmountDevice failed: rpc error: code = Internal desc = busy",
		"; rmdir " + n.node.root} {
		if !strings.Contains(said, want) {
			t.Errorf("it is said %q, want %q", said, want)
		}
	}
	n.driver.Fault(csitest.Unstage, csitest.Fault{})
	n.unstaged()
	n.says("unstaged", "", "")
}
