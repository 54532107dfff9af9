package agent

import (
	"context"

	"github.com/numalet/numalet/agent/stats"
	"github.com/numalet/numalet/agent/stats/kernel"
)

// newStats tells what the node and its pods use.
func newStats(ctx context.Context, n node, p parts, l *links) (*stats.Collector, error) {
	proc, err := kernel.NewProc("")
	if err != nil {
		return nil, err
	}
	k := &n.cfg.Kubelet
	groups := stats.Groups{Groups: kernel.NewGroups("")}
	if n.tree != nil {
		groups.Pods, groups.Paths = n.tree.PodsPath(), n.tree.Paths
	}
	info := systemInfo(ctx, "/", n)
	return stats.New(stats.Config{
		Node: n.name, Runtime: n.client, Running: p.observer.All, Registry: n.registry,
		CPUs: func() stats.CPUs {
			m := n.hardware.Get().Machine
			return stats.CPUs{Logical: m.Online().Size(), Cores: len(m.Cores()),
				Sockets: len(m.Sockets())}
		},
		Host: stats.Host{BootID: info.BootID, MachineID: info.MachineID,
			SystemUUID: info.SystemUUID},
		Groups: groups, Proc: proc,
		Disks: stats.DisksConfig{
			Root: n.cfg.RootDir, LogsDir: k.PodLogsDir, Volumes: k.VolumeStatsAggPeriod.Duration,
			Claims: l.claims.get, Looked: p.metrics.VolumeLooked,
		},
	})
}
