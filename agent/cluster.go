package agent

import (
	"context"

	"github.com/numalet/numalet/agent/kubeapi"
)

// newKube makes the client of the API server; nil without --kubeconfig.
func newKube(ctx context.Context, n node) (*kubeapi.Client, error) {
	if n.cfg.Cluster.Kubeconfig == "" {
		return nil, nil
	}
	return kubeapi.New(ctx, kubeapi.Config{
		Cluster: n.cfg.Cluster, Kubelet: &n.cfg.Kubelet, Node: n.name,
	})
}

// kubeParts are those that run from the start on a node of a cluster.
func kubeParts(n node) []part {
	if n.kube == nil {
		return nil
	}
	return []part{{"API server client", n.kube.Run}}
}
