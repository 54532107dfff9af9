package admission

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"
)

// ReasonFeature is the kubelet's reason for a pod that needs what its node does not have.
const ReasonFeature = "PodFeatureUnsupported"

// Features refuses pods that need a feature of the node (KEP-5328) which is not among declared. The
// scheduler keeps such pods away; those that name the node, static ones among them, come all the
// same. of is the release whose features count.
func Features(declared []string, of *version.Version) Handler {
	framework := nodedeclaredfeatures.DefaultFramework
	has := framework.TryMap(declared)
	return func(a Attempt) *Refusal {
		needs, err := framework.InferForPodScheduling(
			&types.PodInfo{Spec: &a.Pod.Spec, Status: &a.Pod.Status}, of)
		if err != nil {
			return &Refusal{Reason: ReasonFeature, Message: "what the pod needs of the node is not " +
				"known: " + err.Error()}
		}
		match, err := framework.MatchNodeFeatureSet(needs, has)
		switch {
		case err != nil:
			return &Refusal{Reason: ReasonFeature, Message: "what the pod needs of the node was not " +
				"compared with what the node has: " + err.Error()}
		case !match.IsMatch:
			return &Refusal{Reason: ReasonFeature, Message: "Pod requires node features that are not " +
				"available: " + strings.Join(match.UnsatisfiedRequirements, ", ")}
		}
		return nil
	}
}
