package agent

import (
	"context"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/agent/node/runtimeup"
	"github.com/numalet/numalet/internal/housekeeping"
	"github.com/numalet/numalet/internal/part"
)

// newPodCIDR tells the runtime which addresses pods get: what the node's object says, and until
// then, or on a standalone node, the configuration.
func newPodCIDR(n node, h host, object func() *v1.Node) part.Part {
	p := &runtimeup.PodCIDR{
		Want: func() string { return podCIDR(object(), n.cfg.Kubelet.PodCIDR) },
		Tell: func(ctx context.Context, cidr string) error {
			return h.client.Runtime().UpdateRuntimeConfig(ctx, &runtimeapi.RuntimeConfig{
				NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: cidr},
			})
		},
	}
	return part.Chore(housekeeping.Task{
		Name: "addresses of pods", First: time.Millisecond, Run: p.Look,
		Period: n.cfg.Kubelet.NodeStatusUpdateFrequency.Duration,
	})
}

// podCIDR returns what the node's object says, which may not be known yet, or else the configured
// range.
func podCIDR(own *v1.Node, configured string) string {
	if own != nil && len(own.Spec.PodCIDRs) > 0 {
		return strings.Join(own.Spec.PodCIDRs, ",")
	}
	return configured
}
