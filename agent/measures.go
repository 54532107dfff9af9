package agent

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/agent/admission"
	"github.com/numalet/numalet/agent/allocation"
)

// measures are the agent's own metrics, with the kubelet's names.
type measures struct {
	nodeName   *metrics.GaugeVec
	rejections *metrics.CounterVec
}

func newMeasures(registry metrics.KubeRegistry, node string) (*measures, error) {
	m := &measures{
		nodeName: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name: "kubelet_node_name", Help: "The node's name. The count is always 1.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"node"}),
		rejections: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "kubelet_admission_rejections_total", Help: "Pods rejected by admission, by reason.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"reason"}),
	}
	for _, c := range []metrics.Registerable{m.nodeName, m.rejections} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metric %s: %w", c.FQName(), err)
		}
	}
	m.nodeName.WithLabelValues(node).Set(1)
	return m, nil
}

func (m *measures) rejection(r admission.Result) {
	m.rejections.WithLabelValues(reasonLabel(r.Reason)).Inc()
}

// reasonLabel keeps the label's values few: each extended resource would be one more.
func reasonLabel(reason string) string {
	switch resource, short := strings.CutPrefix(reason, "OutOf"); {
	case short && allocation.IsExtended(v1.ResourceName(resource)):
		return "OutOfExtendedResources"
	case short, reason == allocation.ReasonUnexpected, reason == allocation.ReasonTopology,
		reason == admission.ReasonSysctl:
		return reason
	}
	return "Other"
}
