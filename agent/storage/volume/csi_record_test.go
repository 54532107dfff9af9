package volume

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/numalet/numalet/agent/storage/volume/csi/csitest"
)

// Before the driver is called, files say what it may do: an agent that is killed during the call leaves
// nothing that the next one does not know.
func TestDiskIsRecordedBeforeCalls(t *testing.T) {
	for rpc, dir := range map[string]string{csitest.Stage: diskDir, csitest.Publish: publishDir} {
		n := newDisk(t, stages)
		n.driver.Fault(rpc, csitest.Fault{Hang: true})
		ctx, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() { _ = n.SetUp(ctx, diskPod("u")) })
		for len(n.driver.Calls(rpc)) == 0 && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		if id := n.data(dir)["volumeHandle"]; id == "" {
			t.Errorf("during %s, %s names no volume", rpc, dir)
		}
		cancel()
		ended.Wait()
	}
}
