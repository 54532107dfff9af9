package volume

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/numalet/numalet/agent/storage/volume/csi/csitest"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
)

// fails sets up the pod's volume until a call fails, and returns how long it is not repeated.
func (n *diskNode) fails(want string) (pause time.Duration) {
	n.t.Helper()
	n.eventually("the error "+want, func() bool {
		began := time.Now()
		err := n.SetUp(n.t.Context(), diskPod("u"))
		paused, is := errors.AsType[*cri.PausedError](err)
		if !is || paused.Repeated || !strings.Contains(err.Error(), want) {
			return false
		}
		pause = paused.Until.Sub(began)
		return true
	})
	return pause
}

// Each failure of a call makes the pause before the next one twice as long, also if the driver says
// each time that it is not at work any more.
func TestPausesOfFailedCalls(t *testing.T) {
	for _, rpc := range []string{csitest.Stage, csitest.Publish} {
		for _, code := range []codes.Code{codes.Internal, codes.Unavailable} {
			n := newDisk(t, stages)
			n.pauses = await.Pauses{First: 100 * time.Millisecond, Last: time.Hour}
			n.start()
			n.driver.Fault(rpc, csitest.Fault{Err: status.Error(code, "no")})
			for _, least := range []time.Duration{100, 200, 400} {
				if pause := n.fails("no"); pause < least*time.Millisecond {
					t.Errorf("%s with %v: the pause is %v, want %v", rpc, code, pause, least*time.Millisecond)
				}
			}
		}
	}
}

// A call that failed for good after others whose outcome is not known has done nothing, and nothing is
// undone. The next run of the agent does not know that the others were of the same try.
func TestDiskThatFailsInTheEnd(t *testing.T) {
	for _, test := range []struct {
		rpc           string
		done, another []string
	}{
		{csitest.Stage, nil, []string{csitest.Unstage}},
		{csitest.Publish, []string{csitest.Unstage}, []string{csitest.Unpublish, csitest.Unstage}},
	} {
		for _, again := range []bool{false, true} {
			n := newDisk(t, stages)
			n.driver.Fault(test.rpc, csitest.Fault{Err: status.Error(codes.Unavailable, "at work")})
			for range 3 {
				n.fails("at work")
			}
			want := test.done
			if again {
				n.late = true
				n.start()
				want = test.another
			}
			n.driver.Fault(test.rpc, csitest.Fault{Err: refusal()})
			n.fails("it cannot")
			if again {
				n.run()
			}
			n.driver.Forget()
			tearDown(t, n, "u")
			n.unstaged()
			n.did(test.rpc, want...)
			if left := n.tree(filepath.Dir(diskDir)); len(left) > 0 {
				t.Errorf("%s: left %q", test.rpc, left)
			}
		}
	}
}

// A driver that does not know a volume has unpublished it if nothing is mounted at the target, and not
// while something is, or the kernel's mounts cannot be read.
func TestUnknownDiskIsUnpublished(t *testing.T) {
	for _, test := range []struct {
		code                codes.Code
		mounted, blind, end bool
	}{
		{code: codes.NotFound, end: true},
		{code: codes.NotFound, mounted: true},
		{code: codes.NotFound, blind: true},
		{code: codes.Internal},
	} {
		n := newDisk(t, stages)
		setUp(t, n.Volumes, diskPod("u"))
		target := filepath.Join(n.node.root, publishDir, "mount")
		if !test.mounted {
			if err := n.mounter.Unmount(target); err != nil {
				t.Fatal(err)
			}
		}
		n.blind = test.blind
		n.driver.Fault(csitest.Unpublish, csitest.Fault{Err: status.Error(test.code, "unknown")})
		if err := n.TearDown(t.Context(), "u"); (err == nil) != test.end {
			t.Errorf("%+v: it ends with %v", test, err)
		}
	}
}
