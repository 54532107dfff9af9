package volume

import (
	"fmt"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/numalet/numalet/agent/storage/volume/csi/csitest"
)

// uncertain are the codes after which a driver may still be at work.
var uncertain = map[codes.Code]bool{codes.Canceled: true, codes.DeadlineExceeded: true, codes.Unavailable: true,
	codes.ResourceExhausted: true, codes.Aborted: true}

// A driver that fails in any call with any code, before its work or after it, and is well again, gets
// each volume made and taken back, whether the pod waits for that or goes, and the agent is killed or not:
// nothing is left, and no call is made that no caller may make.
func TestDriverOfAllCodes(t *testing.T) {
	for _, rpc := range []string{csitest.Capabilities, csitest.Stage, csitest.Publish, csitest.Unpublish,
		csitest.Unstage} {
		for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
			if some := uncertain[code] || code == codes.Internal || code == codes.NotFound; testing.Short() && !some {
				continue
			}
			for way := range 8 {
				done, goes, killed := way&1 > 0, way&2 > 0, way&4 > 0
				if done && !uncertain[code] && (rpc == csitest.Stage || rpc == csitest.Publish) {
					continue // with such a code the driver says that it has not done it
				}
				n := newDisk(t, stages)
				fault := csitest.Fault{Done: done, Err: status.Error(code, "it fails"), Count: 2}
				what := fmt.Sprintf("%s %v, done %t, the pod goes %t, the agent is killed %t", rpc, code, done,
					goes, killed)
				n.driver.Fault(rpc, fault)
				if err := n.SetUp(t.Context(), diskPod("u")); err != nil && !goes {
					n.eventually(what, func() bool { return n.SetUp(t.Context(), diskPod("u")) == nil })
				}
				if killed {
					n.start()
				}
				n.eventually(what+": its end", func() bool { return n.TearDown(t.Context(), "u") == nil })
				n.unstaged()
				left := append(n.tree("pods"), n.tree(filepath.Dir(diskDir))...)
				if staged, has := n.driver.Staged(), n.driver.Published(); len(left)+len(staged)+len(has) > 0 {
					t.Errorf("%s: left %q, staged %q, published %q", what, left, staged, has)
				}
				if wrong := n.driver.Wrong(); len(wrong) > 0 {
					t.Errorf("%s: %q", what, wrong)
				}
				n.stop()
				n.driver.Stop()
			}
		}
	}
}
