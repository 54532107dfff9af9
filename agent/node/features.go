package node

import (
	"slices"

	"k8s.io/component-base/featuregate"
	"k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"
)

// DeclaredFeatures are the names, sorted, of what pods may need of a node (KEP-5328) and find on
// this one: those that exist here and whose gates are on. The resizes of pods that run do not exist
// yet, nor does what the kubelet has behind gates of stage alpha.
func DeclaredFeatures(gates featuregate.FeatureGate) []string {
	exist := []string{"ExtendWebSocketsToKubelet", "RestartAllContainersOnContainerExits"}
	return slices.DeleteFunc(
		nodedeclaredfeatures.DefaultFramework.DiscoverNodeFeatures(
			&types.NodeConfiguration{FeatureGates: gatesByName{gates}}),
		func(name string) bool { return !slices.Contains(exist, name) })
}

type gatesByName struct{ featuregate.FeatureGate }

func (g gatesByName) Enabled(name string) bool {
	return g.FeatureGate.Enabled(featuregate.Feature(name))
}
