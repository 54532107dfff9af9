package manifest

import v1 "k8s.io/api/core/v1"

// Bounds of a container's restart rules.
const (
	maxRestartRules = 20
	maxExitCodes    = 255
)

// validateRestarts checks a container's own restart policy and its rules, which require a policy
// (KEP-5307).
func validateRestarts(c *v1.Container, at place) {
	if c.RestartPolicy != nil {
		oneOf(at.child("restartPolicy"), *c.RestartPolicy, v1.ContainerRestartPolicyAlways,
			v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever)
	} else if len(c.RestartPolicyRules) > 0 {
		at.child("restartPolicy").required("a container with restartPolicyRules needs one")
	}
	rules := at.child("restartPolicyRules")
	if n := len(c.RestartPolicyRules); n > maxRestartRules {
		rules.tooMany(n, maxRestartRules)
		return
	}
	for i, rule := range c.RestartPolicyRules {
		validateRestartRule(rule, rules.index(i))
	}
}

func validateRestartRule(rule v1.ContainerRestartRule, at place) {
	oneOf(at.child("action"), rule.Action, v1.ContainerRestartRuleActionRestart,
		v1.ContainerRestartRuleActionRestartAllContainers)
	codes := at.child("exitCodes")
	if rule.ExitCodes == nil {
		codes.required("a rule is about exit codes")
		return
	}
	oneOf(codes.child("operator"), rule.ExitCodes.Operator, v1.ContainerRestartRuleOnExitCodesOpIn,
		v1.ContainerRestartRuleOnExitCodesOpNotIn)
	switch n := len(rule.ExitCodes.Values); {
	case n == 0:
		codes.child("values").required("name at least one")
	case n > maxExitCodes:
		codes.child("values").tooMany(n, maxExitCodes)
	}
}
