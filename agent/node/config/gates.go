package config

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// KubeletVersion is the release of the kubelet whose gates and defaults we use.
const KubeletVersion = "1.37"

// previousVersion returns the release before KubeletVersion.
func previousVersion() string {
	v := version.MustParseGeneric(KubeletVersion)
	return fmt.Sprintf("%d.%d", v.Major(), v.Minor()-1)
}

// newGates returns the gates with their defaults.
func newGates() (featuregate.MutableVersionedFeatureGate, error) {
	specs := map[featuregate.Feature]featuregate.FeatureSpec{}
	for _, group := range table[[]gateGroup](gatesYAML) {
		for name := range strings.FieldsSeq(group.Gates) {
			specs[featuregate.Feature(name)] = group.Spec
		}
	}
	gates := featuregate.NewVersionedFeatureGate(version.MustParseGeneric(KubeletVersion))
	if err := gates.Add(specs); err != nil {
		return nil, fmt.Errorf("declare feature gates: %w", err)
	}
	if err := gates.AddDependencies(map[featuregate.Feature][]featuregate.Feature{
		"DRAWorkloadResourceClaims": {"GenericWorkload"},
	}); err != nil {
		return nil, fmt.Errorf("declare what feature gates need: %w", err)
	}
	if err := logsapi.AddFeatureGates(gates); err != nil {
		return nil, fmt.Errorf("declare logging feature gates: %w", err)
	}
	return gates, nil
}
