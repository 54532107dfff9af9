package csi_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/numalet/numalet/agent/storage/volume/csi"
	"github.com/numalet/numalet/agent/storage/volume/csi/csitest"
	"github.com/numalet/numalet/deviceplugin/watcher"
	"github.com/numalet/numalet/deviceplugin/watcher/watchertest"
	"github.com/numalet/numalet/test/scratch"
)

// node is Drivers behind a watcher of a plugin registry.
type node struct {
	*csi.Drivers
	t        *testing.T
	registry string
	changes  *atomic.Int32
}

func newNode(t *testing.T, cfg csi.Config) node {
	t.Helper()
	n := node{t: t, changes: new(atomic.Int32)}
	cfg.Changed = func() { n.changes.Add(1) }
	var err error
	if n.Drivers, err = csi.New(cfg); err != nil {
		t.Fatal(err)
	}
	n.registry = watchertest.Watch(t, registerapi.CSIPlugin, n.Handler(), n.Run)
	return n
}

// eventually waits; only a failing test waits long.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for until := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func (n node) registered(name string) func() bool {
	return func() bool { return n.Registered(name) }
}

// A driver is registered with what it says of the node, until its socket is gone; one that is asked
// again may say something else.
func TestRegistration(t *testing.T) {
	n := newNode(t, csi.Config{})
	topology := &csipb.Topology{Segments: map[string]string{"zone": "a"}}
	d := csitest.Start(t, csitest.Config{Registry: n.registry, Info: &csipb.NodeGetInfoResponse{
		NodeId: "i-1", MaxVolumesPerNode: 8, AccessibleTopology: topology}})
	eventually(t, "the driver", n.registered(csitest.Name))
	want := []csi.Node{{Driver: csitest.Name, NodeID: "i-1", MaxVolumes: 8,
		Topology: map[string]string{"zone": "a"}}}
	if diff := cmp.Diff(want, n.Nodes()); diff != "" {
		t.Error(diff)
	}
	eventually(t, "the notice", func() bool { return len(d.Notified()) > 0 })
	if notice := d.Notified()[0]; !notice.PluginRegistered || n.changes.Load() != 1 {
		t.Errorf("told %v, %d changes", notice, n.changes.Load())
	}
	n.NodeInfo(csitest.Name) // it says the same
	eventually(t, "a question", func() bool { return len(d.Calls(csitest.Info)) == 2 })
	d.Says(&csipb.NodeGetInfoResponse{NodeId: "i-1", MaxVolumesPerNode: 7})
	eventually(t, "another answer", func() bool {
		n.NodeInfo(csitest.Name)
		nodes := n.Nodes()
		return len(nodes) == 1 && nodes[0].MaxVolumes == 7
	})
	eventually(t, "the change", func() bool { return n.changes.Load() == 2 })
	if n.Left(csitest.Name) {
		t.Error("it has left before its socket was gone")
	}
	if err := os.Remove(d.Socket); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its leave", func() bool { return len(n.Nodes()) == 0 && n.Left(csitest.Name) })
	n.NodeInfo(csitest.Name) // of a driver that has left: nothing
	eventually(t, "the change", func() bool { return n.changes.Load() == 3 })
}

// A driver that was updated behind another socket is taken when the old one has gone, as one of the
// same version cannot replace it; one that fails to say who the node is, is told so and tried again.
func TestUpdateOfADriver(t *testing.T) {
	n := newNode(t, csi.Config{})
	first := csitest.Start(t, csitest.Config{Registry: n.registry, Instance: "-1"})
	eventually(t, "the first", n.registered(csitest.Name))
	second := csitest.Start(t, csitest.Config{Registry: n.registry, Instance: "-2",
		Info: &csipb.NodeGetInfoResponse{NodeId: "node-2"}})
	eventually(t, "a refusal", func() bool { return len(second.Notified()) > 0 })
	const want = `RegisterPlugin error -- plugin validation failed with err: kubernetes.io/csi: ` +
		`RegisterPlugin for CSI driver "disk.example.com" failed. Another driver with the same name ` +
		`is already registered with a higher supported version: "1.0.0"`
	if notice := second.Notified()[0]; notice.PluginRegistered || notice.Error != want {
		t.Errorf("told %v", notice)
	}
	newer := csitest.Start(t, csitest.Config{Registry: n.registry, Instance: "-3",
		Versions: []string{"0.3.0", "1.5.0", "2.0.0"}, Info: &csipb.NodeGetInfoResponse{NodeId: "node-3"}})
	is := func(id string) func() bool {
		return func() bool { return len(n.Nodes()) == 1 && n.Nodes()[0].NodeID == id }
	}
	eventually(t, "the newer one", is("node-3"))
	first.Stop() // what replaced it stays
	newer.Stop()
	eventually(t, "the second", is("node-2"))
	second.Kill()
	second.Fault(csitest.Info, csitest.Fault{Err: status.Error(codes.Internal, "no\nmetadata"), Count: 1})
	second.Revive(t)
	eventually(t, "two more notices", func() bool { return len(second.Notified()) > 2 })
	eventually(t, "a second try", is("node-2"))
	const failed = "RegisterPlugin error -- plugin registration failed with err: rpc error: code = " +
		"Internal desc = no metadata"
	if !slices.ContainsFunc(second.Notified(), func(s *registerapi.RegistrationStatus) bool {
		return s.Error == failed
	}) {
		t.Errorf("told %v", second.Notified())
	}
}

// A plugin that cannot be registered is told why, in the kubelet's words where it has some.
func TestRefused(t *testing.T) {
	n := newNode(t, csi.Config{})
	v1 := []string{"1.0.0"}
	const validation = "validation failed for CSI Driver d at endpoint /a: kubernetes.io/csi: " +
		`ValidatePlugin for CSI driver "d" failed. `
	for name, tc := range map[string]struct {
		found watcher.Plugin
		want  string
	}{
		"no versions": {watcher.Plugin{Name: "d", Endpoint: "/a"},
			validation + "Plugin returned an empty list for supported versions"},
		"old": {watcher.Plugin{Name: "d", Endpoint: "/a", Versions: []string{"0.3.0"}}, validation +
			`None of the versions specified ["0.3.0"] are supported. err=highest supported version ` +
			"reported is 0.3.0, must be v1.x"},
		"new": {watcher.Plugin{Name: "d", Endpoint: "/a", Versions: []string{"2.0.0"}}, validation +
			`None of the versions specified ["2.0.0"] are supported.`},
		"no version": {watcher.Plugin{Name: "d", Endpoint: "/a", Versions: []string{"x"}}, validation +
			`None of the versions specified ["x"] are supported.`},
		"no name":   {watcher.Plugin{Endpoint: "/a", Versions: v1}, `the name "" of the CSI driver`},
		"a path":    {watcher.Plugin{Name: "../x", Versions: v1}, `the name "../x" of the CSI driver`},
		"long name": {watcher.Plugin{Name: strings.Repeat("x", 64), Versions: v1}, "may have 63"},
		"relative": {watcher.Plugin{Name: "d", Endpoint: "a.sock", Versions: v1},
			`the endpoint "a.sock" of CSI driver d is invalid`},
		"long path": {watcher.Plugin{Name: "d", Endpoint: "/" + strings.Repeat("a", 107), Versions: v1},
			"of at most 107 bytes"},
	} {
		_, err := n.Handler()(t.Context(), tc.found)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// An answer to NodeGetInfo that no CSINode can hold is refused.
func TestUnusableNodeInfo(t *testing.T) {
	segments := map[string]string{}
	for i := range 65 {
		segments[fmt.Sprint(i)] = "x"
	}
	for want, said := range map[string]*csipb.NodeGetInfoResponse{
		"it has no node_id":            {},
		"its node_id has 257 bytes":    {NodeId: strings.Repeat("x", 257)},
		"max_volumes_per_node is -1":   {NodeId: "n", MaxVolumesPerNode: -1},
		"its topology has 65 segments": {NodeId: "n", AccessibleTopology: &csipb.Topology{Segments: segments}},
		"":                             {NodeId: "n"},
	} {
		n := newNode(t, csi.Config{})
		d := csitest.Start(t, csitest.Config{Registry: n.registry, Info: said})
		eventually(t, "a notice", func() bool { return len(d.Notified()) > 0 })
		if notice := d.Notified()[0]; !strings.Contains(notice.Error, want) || notice.PluginRegistered != (want == "") {
			t.Errorf("%v: told %v, want %q", said, notice, want)
		}
	}
}

// A driver that hangs when it is asked keeps no other one from being registered.
func TestHangingRegistration(t *testing.T) {
	n := newNode(t, csi.Config{})
	slow := csitest.New(csitest.Config{Name: "slow.example.com", Registry: n.registry,
		Dir: scratch.Dir(t)})
	slow.Fault(csitest.Info, csitest.Fault{Hang: true})
	slow.Revive(t)
	t.Cleanup(slow.Stop)
	eventually(t, "its call", func() bool { return len(slow.Calls(csitest.Info)) > 0 })
	csitest.Start(t, csitest.Config{Registry: n.registry})
	eventually(t, "the other one", n.registered(csitest.Name))
	if n.Registered("slow.example.com") {
		t.Error("the one that hangs is registered")
	}
}

// All calls to a driver go over one connection, until it is gone: the driver has died, or had no
// answer, or another one has put its socket into the same place.
func TestOneConnection(t *testing.T) {
	n := newNode(t, csi.Config{Deadlines: csi.Deadlines{Call: 5 * time.Second}})
	d := csitest.Start(t, csitest.Config{Registry: n.registry})
	eventually(t, "the driver", n.registered(csitest.Name))
	calls := func(d *csitest.Driver, what string, more int) {
		t.Helper()
		before := len(d.Calls(csitest.Info))
		eventually(t, "calls: "+what, func() bool {
			n.NodeInfo(csitest.Name)
			return len(d.Calls(csitest.Info)) >= before+more
		})
	}
	ask := func(what string, connections int) {
		t.Helper()
		calls(d, what, 3)
		if got := d.Connections(); got != connections {
			t.Errorf("%s: %d connections, want %d", what, got, connections)
		}
	}
	ask("registered", 1)
	d.Fault(csitest.Info, csitest.Fault{Err: status.Error(codes.Internal, "no metadata"), Count: 1})
	ask("after a call that failed", 1)
	d.Fault(csitest.Info, csitest.Fault{Hang: true, Count: 1})
	ask("after a call that had no answer", 2)
	if err := os.Rename(d.Endpoint, d.Endpoint+".old"); err != nil {
		t.Fatal(err)
	}
	ask("without its socket", 2)
	next := csitest.Start(t, csitest.Config{Dir: filepath.Dir(d.Endpoint)})
	eventually(t, "a call of the next one", func() bool {
		n.NodeInfo(csitest.Name)
		return len(next.Calls(csitest.Info)) > 0
	})
	next.Kill()
	next.Revive(t)
	calls(next, "after its death", 1)
	if got := next.Connections(); got != 2 {
		t.Errorf("%d connections to the next one, want one before its death and one after", got)
	}
}
