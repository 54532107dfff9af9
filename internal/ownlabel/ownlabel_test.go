package ownlabel

import "testing"

// TestOwnLabels: labels that a node may not set on itself are refused at start, not by the API
// server.
func TestOwnLabels(t *testing.T) {
	for key, want := range map[string]bool{
		"plain": true, "example.com/x": true, "node.kubernetes.io/x": true,
		"a.node.kubernetes.io/x": true, "kubelet.kubernetes.io/x": true,
		"topology.kubernetes.io/zone": true, "kubernetes.io/hostname": true,
		"beta.kubernetes.io/instance-type": true, "failure-domain.beta.kubernetes.io/zone": true,
		"notkubernetes.io/x": true,
		"kubernetes.io/x":    false, "node-restriction.kubernetes.io/x": false, "x.k8s.io/y": false,
		"node-role.kubernetes.io/worker": false, "topology.kubernetes.io/rack": false,
	} {
		if got := Is(key); got != want {
			t.Errorf("%s: %v, want %v", key, got, want)
		}
	}
}
