package peer

import (
	"fmt"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/harness"
)

// guarded measures what an idle agent takes for guarding its node: with thresholds of evictions, none of
// them near, and without any, for the same pods. Each has a volume, whose use is measured in both cases.
func (n *node) guarded() {
	n.t.Helper()
	names := make([]string, n.settings.burst/2)
	for i := range names {
		names[i] = fmt.Sprintf("guarded%d", i)
	}
	n.phase("guarded", "running", names, n.ready, func(name string) {
		pod := n.pod(name)
		pod.Spec.Volumes = []v1.Volume{{Name: "cache"}} // an emptyDir
		n.create(pod)
	})
	limits := map[string]string{"memory.available": "100Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%",
		"imagefs.available": "1%", "imagefs.inodesFree": "1%", "pid.available": "1%"}
	none := maps.Clone(limits)
	for signal := range none {
		none[signal] = "0%"
	}
	for _, of := range []struct {
		name   string
		limits map[string]string
	}{{"guarded", limits}, {"unguarded", none}} {
		n.Settings["evictionHard"] = of.limits
		n.Kill()
		n.Start()
		n.cluster.AwaitReady(n.Name)
		time.Sleep(20 * time.Second) // for what a start takes
		cpu := n.CPU()
		time.Sleep(n.settings.idle)
		n.column.add(of.name+"_idle_cpu_percent", percent(n.CPU()-cpu, n.settings.idle))
		n.column.add(of.name+"_rss_mib", harness.MemoryMiB(n.t, n.PID(), "VmRSS"))
	}
	n.phase("guarded", "gone", names, n.gone, func(name string) { n.remove(name) })
}
