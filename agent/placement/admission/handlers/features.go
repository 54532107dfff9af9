package handlers

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"

	"github.com/numalet/numalet/agent/placement/admission/decide"
)

// ReasonFeature is the kubelet's reason for a pod that needs what its node does not have.
const ReasonFeature = "PodFeatureUnsupported"

// Features are those of the node that pods may need (KEP-5328).
type Features struct {
	declared nodedeclaredfeatures.FeatureSet
	of       *version.Version
}

// NewFeatures are the declared ones of a node. of is the release whose features count.
func NewFeatures(declared []string, of *version.Version) Features {
	return Features{nodedeclaredfeatures.DefaultFramework.TryMap(declared), of}
}

// Refuse is a handler that refuses pods which need a feature that is not declared. The scheduler
// keeps such pods away; those that name the node, static ones among them, come all the same.
func (f Features) Refuse(a decide.Attempt) *decide.Refusal {
	lacking, err := f.lacking(
		nodedeclaredfeatures.DefaultFramework.InferForPodScheduling(about(a.Pod), f.of))
	switch {
	case err != nil:
		return &decide.Refusal{Reason: ReasonFeature, Message: "what the pod needs of the node was not " +
			"compared with what the node has: " + err.Error()}
	case len(lacking) > 0:
		return &decide.Refusal{Reason: ReasonFeature, Message: "Pod requires node features that are not " +
			"available: " + strings.Join(lacking, ", ")}
	}
	return nil
}

// Lacking are the features that are not declared and that it takes to change a pod that the node has
// from one into the other.
func (f Features) Lacking(was, is *v1.Pod) []string {
	lacking, err := f.lacking(nodedeclaredfeatures.DefaultFramework.InferForPodUpdate(
		about(was), about(is), f.of))
	if err != nil { // of a release that is not known, and this one is
		return nil
	}
	return lacking
}

func (f Features) lacking(needs nodedeclaredfeatures.FeatureSet, err error) ([]string, error) {
	if err != nil {
		return nil, err
	}
	match, err := nodedeclaredfeatures.DefaultFramework.MatchNodeFeatureSet(needs, f.declared)
	if err != nil {
		return nil, err
	}
	return match.UnsatisfiedRequirements, nil
}

func about(pod *v1.Pod) *types.PodInfo {
	return &types.PodInfo{Spec: &pod.Spec, Status: &pod.Status}
}
