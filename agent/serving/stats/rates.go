package stats

import (
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// rates holds the last samples of CPU time counters, keyed by their owners.
type rates map[string]sample

type sample struct {
	at    time.Time
	nanos uint64
	rate  *uint64 // nanoseconds per second before at; nil: this is the first sample
}

// next sets a missing rate to the one since the last sample, and records the sample in to. A
// counter that decreased has started again.
func (r rates) next(to rates, of string, cpu *statsapi.CPUStats) {
	if cpu == nil || cpu.UsageCoreNanoSeconds == nil {
		return
	}
	now := sample{at: cpu.Time.Time, nanos: *cpu.UsageCoreNanoSeconds}
	if last, ok := r[of]; ok {
		now.rate = last.until(now)
	}
	if cpu.UsageNanoCores == nil {
		cpu.UsageNanoCores = now.rate
	}
	to[of] = now
}

func (s sample) until(now sample) *uint64 {
	took := now.at.Sub(s.at)
	switch {
	case took <= 0: // the runtime reports the same moment again
		return s.rate
	case now.nanos < s.nanos:
		return nil
	}
	return new(uint64(float64(now.nanos-s.nanos) / took.Seconds()))
}

// counter is a counter of CPU time and its key.
type counter struct {
	of string
	*statsapi.CPUStats
}

// counters returns all counters of a snapshot.
func counters(s *Snapshot) []counter {
	out := []counter{{"node", s.Node.CPU}}
	for _, c := range s.Node.SystemContainers {
		out = append(out, counter{"system " + c.Name, c.CPU})
	}
	for _, p := range s.Pods {
		out = append(out, counter{p.Sandbox, p.Stats.CPU})
		for _, c := range p.Containers {
			out = append(out, counter{c.ID, c.Stats.CPU})
		}
	}
	return out
}
