package podspec

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// WithoutEffect are the fields of the pod that have no effect yet, as paths with the names of
// containers.
func WithoutEffect(pod *v1.Pod) []string {
	var out []string
	add := func(set bool, format string, args ...any) {
		if set {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	for c, kind := range Containers(pod) {
		for _, rule := range c.RestartPolicyRules {
			add(rule.Action == v1.ContainerRestartRuleActionRestartAllContainers,
				"spec.%s[%s].restartPolicyRules: action RestartAllContainers", listOf(kind), c.Name)
		}
	}
	return append(out, fieldsWithoutEffect(pod)...)
}

// Awaited is what the pod needs to run at all that it cannot have yet; "": nothing.
func Awaited(pod *v1.Pod) string {
	if claims := pod.Spec.ResourceClaims; len(claims) > 0 {
		return fmt.Sprintf("spec.resourceClaims: resource claim %q", claims[0].Name)
	}
	return ""
}
