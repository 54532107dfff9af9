package admission

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/numalet/numalet/agent/placement/admission/line"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology"
)

// BenchmarkLine is many pods that come at once, each for a CPU and a device of one plugin, which is
// asked for a preference for one pod after the other, until all are admitted.
func BenchmarkLine(b *testing.B) {
	for _, pods := range []int{50, 200, 800} {
		b.Run(fmt.Sprint(pods), func(b *testing.B) {
			var busy time.Duration
			plans := 0
			for b.Loop() {
				b.StopTimer()
				q, planned := preferring(b, pods)
				b.StartTimer()
				began := spent(b)
				for i := range pods {
					q.Submit(pod(fmt.Sprint("new-", i), "cpu=1 memory=64Mi example.com/gpu=1"), false)
				}
				settle(b.Context(), q)
				for slices.ContainsFunc(q.admitter.line.Order, func(e *line.Entry) bool {
					return e.State != record.Admitted
				}) {
					settle(b.Context(), q)
				}
				busy += spent(b) - began
				plans += *planned
			}
			each := float64(busy.Microseconds()) / float64(b.N*pods)
			b.ReportMetric(each, "cpu-µs/pod")
			b.ReportMetric(float64(plans)/float64(b.N*pods), "plans/pod")
		})
	}
}

// preferring is a queue, and the number of its plans, on a machine with as many CPUs and devices as pods, half on each node, whose
// plugin prefers the first devices on offer.
func preferring(b *testing.B, pods int) (*Queue, *int) {
	q, planned := counter(b, roomWith(b, pods, pods+2), pods)
	p := q.admitter.cfg.Plugins.(*plugins)
	r := p.Inventory().Resources["example.com/gpu"]
	r.Options.Preferred = true
	for i, d := range r.Devices {
		r.Devices[i] = &devicemanager.Device{
			ID: d.ID, Healthy: true, Nodes: topology.NewNodeSet(topology.NodeID(i % 2)),
		}
	}
	p.set(r)
	p.advise = func(r devicemanager.PreferredRequest) ([]string, error) {
		return r.Available[:r.Size], nil
	}
	return q, planned
}
