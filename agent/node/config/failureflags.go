package config

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/numalet/numalet/deviceplugin/failure"
)

// DeviceFailures says what becomes of pods whose devices fail.
type DeviceFailures struct {
	// Policies are rules as failure.Rules.Add takes them; HoldOff is that of rules without one.
	Policies []string
	HoldOff  time.Duration
	// Spacing is the least time between actions on two pods of one controller.
	Spacing time.Duration
}

const (
	failurePolicyFlag  = "device-failure-policy"
	failureHoldOffFlag = "device-failure-hold-off"
	failureSpacingFlag = "device-failure-spacing"
)

// maxFailurePolicies bounds the rules.
const maxFailurePolicies = 256

func (d *DeviceFailures) add(fs *pflag.FlagSet) {
	fs.StringSliceVar(&d.Policies, failurePolicyFlag, nil,
		"what becomes of a pod whose device stays unhealthy: [NAME=]ACTION[:HOLD-OFF] with commas, NAME an "+
			"extended resource or a driver of resource claims, without it for all others; ACTION none (as "+
			"the kubelet), event, restart-container or fail-pod")
	fs.DurationVar(&d.HoldOff, failureHoldOffFlag, time.Minute,
		"how long a device must be unhealthy without a break before something is done, in policies "+
			"that do not say")
	fs.DurationVar(&d.Spacing, failureSpacingFlag, time.Minute,
		"the least time between two pods of one controller that are disrupted since their devices "+
			"failed; 0: all at once")
}

// check reports flags with invalid values.
func (d *DeviceFailures) check(p *problems) {
	for name, v := range map[string]time.Duration{
		failureHoldOffFlag: d.HoldOff, failureSpacingFlag: d.Spacing,
	} {
		if v < 0 || v > failure.MaxHoldOff {
			p.invalid("--"+name, v.String(), "must be between 0 and 24h")
		}
	}
	if len(d.Policies) > maxFailurePolicies {
		p.invalid("--"+failurePolicyFlag, len(d.Policies), "must be at most %d policies; one without a "+
			"name is for all others", maxFailurePolicies)
		return
	}
	var r failure.Rules
	for _, text := range d.Policies {
		if err := r.Add(text, d.HoldOff); err != nil {
			p.invalid("--"+failurePolicyFlag, text, "%v", err)
		}
	}
}

// Rules returns the rules.
func (d DeviceFailures) Rules() (failure.Rules, error) {
	r := failure.Rules{Pause: d.Spacing}
	for _, text := range d.Policies {
		if err := r.Add(text, d.HoldOff); err != nil {
			return r, err
		}
	}
	return r, nil
}
