package nodes

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/cluster/requests"
)

// patch writes the differences of a node's metadata and status, and returns the result.
func (n *Nodes) patch(ctx context.Context, old, now *v1.Node) (*v1.Node, error) {
	raw, err := difference(old, now)
	if err != nil {
		return nil, fmt.Errorf("make the patch of the node: %w", err)
	}
	return n.cfg.Heartbeats.CoreV1().Nodes().Patch(ctx, old.Name,
		types.StrategicMergePatchType, raw, metav1.PatchOptions{}, "status")
}

// difference returns the strategic merge patch from one node to the other. Addresses that differ
// are replaced as a whole: their merge key, the type, is not unique.
func difference(old, now *v1.Node) ([]byte, error) {
	raw, err := requests.StrategicPatch(*old, *now)
	if err != nil {
		return nil, err
	}
	var patch map[string]any
	if err := json.Unmarshal(raw, &patch); err != nil {
		return nil, err
	}
	status, _ := patch["status"].(map[string]any)
	if _, differ := status["addresses"]; !differ {
		return raw, nil
	}
	whole := []any{map[string]string{"$patch": "replace"}}
	for _, a := range now.Status.Addresses {
		whole = append(whole, a)
	}
	status["addresses"] = whole
	delete(status, "$setElementOrder/addresses")
	return json.Marshal(patch)
}
