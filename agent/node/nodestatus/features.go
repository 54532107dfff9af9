package nodestatus

import (
	"slices"

	"k8s.io/component-base/featuregate"
	"k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"
)

// DeclaredFeatures returns, sorted, the node features that pods may require (KEP-5328) and that
// this node has: those that are implemented, whose gates are on, and that the runtime takes part in.
func DeclaredFeatures(gates featuregate.FeatureGate, runtime types.RuntimeFeatures) []string {
	exist := []string{"DRANodeAllocatableResources", "DRAOptionalNodeOperations",
		"ExtendWebSocketsToKubelet", "InPlacePodLevelResourcesVerticalScaling",
		"InPlacePodVerticalScalingInitContainers", "InPlacePodVerticalScalingMemoryBackedVolumes", "RestartAllContainersOnContainerExits",
		"UserNamespacesHostNetworkSupport", "VolumeBindMountOptions"}
	return slices.DeleteFunc(
		nodedeclaredfeatures.DefaultFramework.DiscoverNodeFeatures(
			&types.NodeConfiguration{FeatureGates: gatesByName{gates}, RuntimeFeatures: runtime}),
		func(name string) bool { return !slices.Contains(exist, name) })
}

type gatesByName struct{ featuregate.FeatureGate }

func (g gatesByName) Enabled(name string) bool {
	return g.FeatureGate.Enabled(featuregate.Feature(name))
}
