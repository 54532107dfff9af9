package source

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Bounds of a container's restart rules.
const (
	maxRestartRules = 20
	maxExitCodes    = 255
)

// validateRestarts checks a container's own restart policy, and its rules, which need one (KEP-5307).
func validateRestarts(c *v1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.RestartPolicy != nil {
		errs = oneOf(at.Child("restartPolicy"), *c.RestartPolicy, v1.ContainerRestartPolicyAlways,
			v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever)
	} else if len(c.RestartPolicyRules) > 0 {
		errs = append(errs, field.Required(at.Child("restartPolicy"),
			"a container with restartPolicyRules needs one"))
	}
	rules := at.Child("restartPolicyRules")
	if n := len(c.RestartPolicyRules); n > maxRestartRules {
		return append(errs, field.TooMany(rules, n, maxRestartRules))
	}
	for i, rule := range c.RestartPolicyRules {
		errs = append(errs, validateRestartRule(rule, rules.Index(i))...)
	}
	return errs
}

func validateRestartRule(rule v1.ContainerRestartRule, at *field.Path) field.ErrorList {
	errs := oneOf(at.Child("action"), rule.Action, v1.ContainerRestartRuleActionRestart,
		v1.ContainerRestartRuleActionRestartAllContainers)
	codes := at.Child("exitCodes")
	if rule.ExitCodes == nil {
		return append(errs, field.Required(codes, "a rule is about exit codes"))
	}
	errs = append(errs, oneOf(codes.Child("operator"), rule.ExitCodes.Operator,
		v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn)...)
	switch n := len(rule.ExitCodes.Values); {
	case n == 0:
		errs = append(errs, field.Required(codes.Child("values"), "name at least one"))
	case n > maxExitCodes:
		errs = append(errs, field.TooMany(codes.Child("values"), n, maxExitCodes))
	}
	return errs
}
