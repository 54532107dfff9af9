package node

import (
	"slices"
	"testing"

	"k8s.io/component-base/featuregate"
)

func TestDeclaredFeatures(t *testing.T) {
	for name, test := range map[string]struct {
		off  string
		want []string
	}{
		"all": {want: []string{
			"ExtendWebSocketsToKubelet", "RestartAllContainersOnContainerExits"}},
		"one is off": {off: "RestartAllContainersOnContainerExits",
			want: []string{"ExtendWebSocketsToKubelet"}},
		"the other": {off: "ExtendWebSocketsToKubelet",
			want: []string{"RestartAllContainersOnContainerExits"}},
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
		if got := DeclaredFeatures(gates); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
