package gpu_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/deviceplugin/gpu"
	"github.com/numalet/numalet/deviceplugin/gpu/mock"
	"github.com/numalet/numalet/test/scratch"
)

// node is a running plugin, seen through its sockets.
type node struct {
	rig  *mock.Rig
	dir  string
	said *lines
}

// patience is longer than a driver takes unless it hangs, however busy the machine is.
const patience = 3 * time.Second

// run starts a plugin that ends with the test.
func run(t *testing.T, r *mock.Rig, set gpu.Settings) *node {
	t.Helper()
	n := &node{rig: r, dir: scratch.Dir(t), said: &lines{}}
	p, err := gpu.New(gpu.Config{Driver: r, Settings: set, Dir: n.dir,
		Interval: 20 * time.Millisecond, Patience: patience, Log: n.said.log})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		group.Wait()
		if left, err := os.ReadDir(n.dir); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
	return n
}

// list returns the numbers of healthy and unhealthy devices of a resource; "none" without such a
// resource.
func (n *node) list(ctx context.Context, resource string) string {
	path := filepath.Join(n.dir, "numalet-"+strings.ReplaceAll(resource, "/", "-")+".sock")
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return "none"
	}
	conn, err := grpc.NewClient("unix:"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := v1beta1.NewDevicePluginClient(conn).ListAndWatch(ctx, &v1beta1.Empty{})
	if err != nil {
		return err.Error()
	}
	got, err := stream.Recv()
	if err != nil {
		return err.Error()
	}
	count := map[string]int{}
	for _, d := range got.GetDevices() {
		count[d.GetHealth()]++
	}
	return fmt.Sprintf("%d+%d", count[v1beta1.Healthy], count[v1beta1.Unhealthy])
}

// await waits until a resource has the wanted numbers.
func (n *node) await(t *testing.T, resource, want string) {
	t.Helper()
	got := ""
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		if got = n.list(t.Context(), resource); got == want {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	n.said.mu.Lock()
	defer n.said.mu.Unlock()
	t.Fatalf("%s is %s, want %s; the plugin said\n%s", resource, got, want,
		strings.Join(n.said.all, "\n"))
}

func (n *node) hasSaid(t *testing.T, part string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		if n.said.has(part) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("the plugin did not say %q", part)
}

// A driver that comes late, goes and returns: only present devices are offered.
func TestDriverLateAndGone(t *testing.T) {
	t.Parallel()
	r := rig(t, "dgxh100")
	do(t, r, "unload")
	n := run(t, r, gpu.Defaults())
	n.hasSaid(t, "the NVIDIA driver is not there; looking again")
	if got := n.list(t.Context(), gpu.GPUResource); got != "none" {
		t.Errorf("without a driver: %s", got)
	}
	do(t, r, "load")
	n.await(t, gpu.GPUResource, "8+0")
	do(t, r, "unload")
	n.await(t, gpu.GPUResource, "0+8")
	n.hasSaid(t, "is unhealthy: DriverGone")
	do(t, r, "remove 7", "load")
	n.await(t, gpu.GPUResource, "7+0")
	n.hasSaid(t, "is healthy again, it was not because of DriverGone")
}

func TestFailOnInit(t *testing.T) {
	t.Parallel()
	r := rig(t, "dgxh100")
	do(t, r, "unload")
	set := gpu.Defaults()
	set.FailOnInit = true
	p, err := gpu.New(gpu.Config{Driver: r, Settings: set, Dir: scratch.Dir(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Run(t.Context()); !errors.Is(err, gpu.ErrNoDriver) {
		t.Errorf("it ended with %v", err)
	}
}

// Every fault makes its GPU unhealthy and says why; the GPU recovers when the fault ends.
func TestHealthComesBack(t *testing.T) {
	t.Parallel()
	r := rig(t, "dgxh100")
	n := run(t, r, gpu.Defaults())
	n.await(t, gpu.GPUResource, "8+0")
	for _, c := range []struct{ fault, over, reason string }{
		{"ecc 1 3", "reset 1", "UncorrectableMemoryErrors: 3 uncorrectable"},
		{"remap 2 pending", "remap 2 done", "RowRemapPending"},
		{"links 3 2", "links 3 0", "NVLinkDown: 2 of 18"},
		{"lose 4", "return 4", "FellOffBus"},
		{"remove 5", "return 5", "FellOffBus"},
		{"action 6 reset", "action 6 none", "RecoveryActionRequired: the driver wants a GPU reset"},
		{"xid 7 119", "reset 7", "CriticalXID: XID 119, GSP RPC timeout"},
	} {
		do(t, r, c.fault)
		n.await(t, gpu.GPUResource, "7+1")
		n.hasSaid(t, "is unhealthy: "+c.reason)
		do(t, r, c.over)
		n.await(t, gpu.GPUResource, "8+0")
		n.hasSaid(t, "is healthy again, it was not because of "+c.reason)
	}
	do(t, r, "xid 0 31")
	n.hasSaid(t, "XID 31, GPU memory page fault: it does not count")
	n.await(t, gpu.GPUResource, "8+0")
}

// MIG devices are followed while the plugin runs; a profile that is gone leaves no resource.
func TestMIGChanges(t *testing.T) {
	t.Parallel()
	r := rig(t, "dgxh100")
	set := gpu.Defaults()
	set.MIG = gpu.MIGMixed
	n := run(t, r, set)
	n.await(t, gpu.GPUResource, "8+0")
	do(t, r, "mig 0 on", "divide 0 1g.10gb=7")
	n.await(t, "nvidia.com/mig-1g.10gb", "7+0")
	n.await(t, gpu.GPUResource, "7+0")
	do(t, r, "divide 0 3g.40gb=1 1g.10gb=2")
	n.await(t, "nvidia.com/mig-1g.10gb", "2+0")
	n.await(t, "nvidia.com/mig-3g.40gb", "1+0")
	do(t, r, "ecc 0 1")
	n.await(t, "nvidia.com/mig-3g.40gb", "0+1")
	do(t, r, "mig 0 off", "reset 0")
	n.await(t, gpu.GPUResource, "8+0")
	n.await(t, "nvidia.com/mig-1g.10gb", "none")
	n.await(t, "nvidia.com/mig-3g.40gb", "none")
}

// While the driver hangs nobody waits for it, and its GPUs are unhealthy.
func TestDriverHangs(t *testing.T) {
	t.Parallel()
	r := rig(t, "gb200")
	n := run(t, r, gpu.Defaults())
	n.await(t, gpu.GPUResource, "4+0")
	do(t, r, "hang")
	n.await(t, gpu.GPUResource, "0+4")
	n.hasSaid(t, "is unhealthy: DriverHangs")
	do(t, r, "ecc 1 1", "resume")
	n.await(t, gpu.GPUResource, "3+1")
}
