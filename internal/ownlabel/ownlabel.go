// Package ownlabel knows which labels a node may set on itself.
package ownlabel

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// WellKnown returns Kubernetes' labels that a node may set on itself
// (https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction).
func WellKnown() []string {
	return []string{
		v1.LabelHostname, v1.LabelInstanceTypeStable, v1.LabelOSStable, v1.LabelArchStable,
		v1.LabelTopologyZone, v1.LabelTopologyRegion, v1.LabelInstanceType,
		v1.LabelFailureDomainBetaZone, v1.LabelFailureDomainBetaRegion,
		"beta.kubernetes.io/os", "beta.kubernetes.io/arch",
	}
}

// Is reports whether an API server lets a node set the label on itself.
func Is(key string) bool {
	namespace, _, qualified := strings.Cut(key, "/")
	within := func(domain string) bool {
		return namespace == domain || strings.HasSuffix(namespace, "."+domain)
	}
	return !qualified || !within("kubernetes.io") && !within("k8s.io") ||
		within("kubelet.kubernetes.io") || within("node.kubernetes.io") ||
		slices.Contains(WellKnown(), key)
}
