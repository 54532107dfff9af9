package podspec

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Restarts reports whether a regular container that exited with code is started again, alone or
// with all others. A matching rule of the container decides, else its own policy, else the pod's
// (KEP-5307, KEP-5532).
func Restarts(pod *v1.Pod, c *v1.Container, code int32) bool {
	if RestartRule(c, code) != "" {
		return true
	}
	switch policy(pod, c) {
	case v1.ContainerRestartPolicyNever:
		return false
	case v1.ContainerRestartPolicyOnFailure:
		return code != 0
	default:
		return true
	}
}

// NeverRestarts reports whether the container's policy, or else the pod's, is Never. Rules may
// still restart it.
func NeverRestarts(pod *v1.Pod, c *v1.Container) bool {
	return policy(pod, c) == v1.ContainerRestartPolicyNever
}

func policy(pod *v1.Pod, c *v1.Container) v1.ContainerRestartPolicy {
	if c.RestartPolicy != nil {
		return *c.RestartPolicy
	}
	return v1.ContainerRestartPolicy(pod.Spec.RestartPolicy)
}

// RestartRule returns the action of the container's first rule that matches the exit code; "": none does.
func RestartRule(c *v1.Container, code int32) v1.ContainerRestartRuleAction {
	for _, r := range c.RestartPolicyRules {
		if r.ExitCodes == nil {
			continue
		}
		in := slices.Contains(r.ExitCodes.Values, code)
		if in == (r.ExitCodes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn) {
			return r.Action
		}
	}
	return ""
}
