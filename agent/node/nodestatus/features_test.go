package nodestatus

import (
	"slices"
	"testing"

	"k8s.io/component-base/featuregate"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"
)

func TestDeclaredFeatures(t *testing.T) {
	for name, test := range map[string]struct {
		off     string
		runtime types.RuntimeFeatures
		want    []string
	}{
		"all": {runtime: types.RuntimeFeatures{MountOptions: true}, want: []string{
			"DRANodeAllocatableResources", "DRAOptionalNodeOperations", "ExtendWebSocketsToKubelet",
			"InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers",
			"InPlacePodVerticalScalingMemoryBackedVolumes", "RestartAllContainersOnContainerExits", "VolumeBindMountOptions"}},
		"user namespaces": {off: "DRANodeAllocatableResources",
			runtime: types.RuntimeFeatures{UserNamespacesHostNetwork: true},
			want: []string{"DRAOptionalNodeOperations", "ExtendWebSocketsToKubelet",
				"InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers",
				"InPlacePodVerticalScalingMemoryBackedVolumes", "RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport"}},
		"user namespaces without the gate": {off: "UserNamespacesHostNetworkSupport",
			runtime: types.RuntimeFeatures{UserNamespacesHostNetwork: true},
			want: []string{"DRANodeAllocatableResources", "DRAOptionalNodeOperations",
				"ExtendWebSocketsToKubelet", "InPlacePodLevelResourcesVerticalScaling",
				"InPlacePodVerticalScalingInitContainers", "InPlacePodVerticalScalingMemoryBackedVolumes",
				"RestartAllContainersOnContainerExits"}},
		"one is off": {off: "RestartAllContainersOnContainerExits",
			want: []string{"DRANodeAllocatableResources", "DRAOptionalNodeOperations",
				"ExtendWebSocketsToKubelet", "InPlacePodLevelResourcesVerticalScaling",
				"InPlacePodVerticalScalingInitContainers", "InPlacePodVerticalScalingMemoryBackedVolumes"}},
		"another": {off: "DRANodeAllocatableResources",
			want: []string{"DRAOptionalNodeOperations", "ExtendWebSocketsToKubelet",
				"InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers",
				"InPlacePodVerticalScalingMemoryBackedVolumes", "RestartAllContainersOnContainerExits"}},
	} {
		gates := featuregate.NewFeatureGate()
		specs := map[featuregate.Feature]featuregate.FeatureSpec{}
		for _, gate := range []featuregate.Feature{
			"ExtendWebSocketsToKubelet", "RestartAllContainersOnContainerExits",
			"InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers",
			"InPlacePodVerticalScalingMemoryBackedVolumes", "UserNamespacesHostNetworkSupport",
			"DRANodeAllocatableResources", "VolumeBindMountOptions", "DRAOptionalNodeOperations",
		} {
			specs[gate] = featuregate.FeatureSpec{Default: string(gate) != test.off}
		}
		if err := gates.Add(specs); err != nil {
			t.Fatal(err)
		}
		if got := DeclaredFeatures(gates, test.runtime); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
