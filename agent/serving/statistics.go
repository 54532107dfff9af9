package serving

import (
	"path/filepath"
	"slices"

	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/node/eviction"
	"github.com/numalet/numalet/agent/node/eviction/wake"
	"github.com/numalet/numalet/agent/pods"
	"github.com/numalet/numalet/agent/pods/lifecycle"
	"github.com/numalet/numalet/agent/serving/podsapi"
	"github.com/numalet/numalet/agent/serving/stats"
	"github.com/numalet/numalet/agent/serving/usage"
	"github.com/numalet/numalet/agent/storage"
	"github.com/numalet/numalet/agent/storage/localstorage"
	"github.com/numalet/numalet/cgroups/kernel"
)

// NewStats makes what tells what the node and its pods use.
func NewStats(h *node.Host, pleg *lifecycle.PLEG, s *storage.Storage, m *localstorage.Meter) (*stats.Collector, error) {
	proc, err := kernel.NewProc("")
	if err != nil {
		return nil, err
	}
	groups := stats.Groups{Groups: kernel.NewGroups(""), Pods: h.PodsGroup(),
		Daemons: stats.DaemonGroups(h.DaemonNames().Paths())}
	if h.Tree != nil {
		groups.Paths = h.Tree.Paths
	}
	return stats.New(stats.Config{
		Node: h.Name, Runtime: h.Client, Running: pleg.All, Registry: h.Registry,
		CPUs: func() stats.CPUs {
			m := h.Machine()
			return stats.CPUs{Logical: m.Online().Size(), Cores: len(m.Cores()),
				Sockets: len(m.Sockets())}
		},
		Host: stats.Host{BootID: h.Info.BootID, MachineID: h.Info.MachineID,
			SystemUUID: h.Info.SystemUUID},
		Groups: groups, Proc: proc, HugePagesCount: h.Enabled("HugepageAwareEviction"),
		Disks: stats.DisksConfig{Root: h.Settings.RootDir, Pods: m.Get, Rooms: s.Rooms},
	})
}

// Meter returns what measures for evictions what the node and its pods use.
func Meter(h *node.Host, s *stats.Collector, m *localstorage.Meter) func(*wake.Kernel) eviction.Meter {
	return usage.Usage{Stats: s, Disks: m, Hardware: h.Hardware.Get, PodsGroup: h.PodsGroup(),
		Limited: slices.Contains(h.Settings.Kubelet.EnforceNodeAllocatable, "pods"),
		Played:  h.Settings.Played}.Meter
}

// PodsAPI returns what tells programs on the node of its pods; none if the gate is off.
func PodsAPI(n node.Node) ([]pods.Publisher, error) {
	if !n.Enabled("PodsAPI") {
		return nil, nil
	}
	local, err := podsapi.New(podsapi.Config{
		Socket: filepath.Join(n.Settings.RootDir, "pods-api", "pods-api.sock"), Registry: n.Registry,
	})
	if err != nil {
		return nil, err
	}
	return []pods.Publisher{{Name: "Pods API", Status: local.Wrote, Heard: local.Heard, Run: local.Run}}, nil
}
