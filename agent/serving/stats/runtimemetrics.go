package stats

import (
	"slices"
	"time"

	"github.com/prometheus/common/model"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtimeFamily is one of the runtime's metrics.
type runtimeFamily struct {
	*runtimeapi.MetricDescriptor
	// extra holds the label keys, by index, that are not in common; the others are "".
	extra   []string
	samples []runtimeSample
}

type runtimeSample struct {
	base, extra string
	*runtimeapi.Metric
}

// common lists the labels that every metric has; runtimes lack some of them.
var common = []string{"container", "id", "image", "name", "namespace", "pod"}

// newRuntimeFamily returns nil for an invalid name of a metric or label.
func newRuntimeFamily(d *runtimeapi.MetricDescriptor) *runtimeFamily {
	if !model.LegacyValidation.IsValidMetricName(d.GetName()) {
		return nil
	}
	f := &runtimeFamily{MetricDescriptor: d, extra: slices.Clone(d.GetLabelKeys())}
	for i, key := range f.extra {
		if slices.Contains(common, key) {
			f.extra[i] = ""
		} else if !model.LegacyValidation.IsValidLabelName(key) {
			return nil
		}
	}
	return f
}

// add adds a sample of the sandbox or container with the labels base.
func (f *runtimeFamily) add(base string, m *runtimeapi.Metric) {
	var more []string
	for i, value := range m.GetLabelValues() {
		if i < len(f.extra) && f.extra[i] != "" {
			more = append(more, f.extra[i], value)
		}
	}
	f.samples = append(f.samples, runtimeSample{base, labels(more...), m})
}

// runtime writes the runtime's metrics of the snapshot's pods that were not written before.
func (e *exposition) runtime(in cadvisorInput) {
	families := map[string]*runtimeFamily{}
	for _, d := range in.runtime.Descriptors {
		if f := newRuntimeFamily(d); f != nil && !e.families.Has(d.GetName()) {
			families[d.GetName()] = f
		}
	}
	base := map[string]string{} // labels, by the id of the sandbox or container
	for _, p := range in.Pods {
		base[p.Sandbox] = in.podLabels(p)
		for _, c := range p.Containers {
			base[c.ID] = in.containerLabels(p, c)
		}
	}
	add := func(id string, all []*runtimeapi.Metric) {
		labels, ok := base[id]
		if !ok {
			return
		}
		for _, m := range all {
			if f := families[m.GetName()]; f != nil {
				f.add(labels, m)
			}
		}
	}
	for _, sandbox := range in.runtime.Sandboxes {
		add(sandbox.GetPodSandboxId(), sandbox.GetMetrics())
		for _, c := range sandbox.GetContainerMetrics() {
			add(c.GetContainerId(), c.GetMetrics())
		}
	}
	for _, d := range in.runtime.Descriptors {
		if f := families[d.GetName()]; f != nil && len(f.samples) > 0 && !e.families.Has(d.GetName()) {
			e.runtimeFamily(f)
		}
	}
}

func (e *exposition) runtimeFamily(f *runtimeFamily) {
	kind := gaugeType
	if f.samples[0].GetMetricType() == runtimeapi.MetricType_COUNTER {
		kind = counterType
	}
	e.family(f.GetName(), kind, f.GetHelp())
	for _, s := range f.samples {
		at := time.Time{}
		if s.GetTimestamp() > 0 {
			at = time.Unix(0, s.GetTimestamp())
		}
		e.sample(f.GetName(),
			point{s.base, s.extra, float64(s.GetValue().GetValue()), at})
	}
}
