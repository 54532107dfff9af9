package failure

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/numalet/numalet/internal/oneline"
)

// Action says what becomes of a pod whose device fails.
type Action string

// The actions, from the weakest.
const (
	// None: nothing, as with the kubelet.
	None Action = "none"
	// Event: the pod gets an event when the device has been unhealthy for the hold-off.
	Event Action = "event"
	// RestartContainer: the container is stopped once, and started again as for a failed liveness probe.
	RestartContainer Action = "restart-container"
	// FailPod: the pod ends and has failed, so that its controller makes another one.
	FailPod Action = "fail-pod"
)

// actions lists all.
func actions() []Action { return []Action{None, Event, RestartContainer, FailPod} }

// disrupts reports whether the action stops something.
func (a Action) disrupts() bool { return a == RestartContainer || a == FailPod }

// Rule says what is done once a device has been unhealthy for HoldOff without a break.
type Rule struct {
	Action  Action
	HoldOff time.Duration
}

// Rules say what is done about which devices.
type Rules struct {
	// Named are by extended resource or driver; Usual is for all others.
	Named map[string]Rule
	Usual Rule
	// Pause is the least time between actions on two pods of one workload; 0: none.
	Pause time.Duration
}

// MaxHoldOff bounds hold-offs.
const MaxHoldOff = 24 * time.Hour

// Add adds the rule that a text says: [NAME=]ACTION[:HOLD-OFF], where NAME is an extended resource or
// a driver of resource claims; without NAME it is for all that have no rule of their own.
func (r *Rules) Add(text string, holdOff time.Duration) error {
	name, what, named := strings.Cut(text, "=")
	if !named {
		name, what = "", text
	}
	word, after, timed := strings.Cut(what, ":")
	rule := Rule{Action: Action(word), HoldOff: holdOff}
	if timed {
		var err error
		if rule.HoldOff, err = time.ParseDuration(after); err != nil || rule.HoldOff < 0 ||
			rule.HoldOff > MaxHoldOff {
			return fmt.Errorf("the hold-off %q is no time from 0 to 24h, such as 90s", oneline.Cut(after, 64))
		}
	}
	if !rule.known() {
		return fmt.Errorf("%q is no action; write none, event, restart-container or fail-pod, such as "+
			"example.com/gpu=fail-pod:2m", oneline.Cut(word, 64))
	}
	if !named {
		if r.Usual.Action != "" {
			return fmt.Errorf("it is the second rule without a name; keep one")
		}
		r.Usual = rule
		return nil
	}
	return r.name(name, rule)
}

func (r Rule) known() bool {
	for _, a := range actions() {
		if a == r.Action {
			return true
		}
	}
	return false
}

// name adds the rule of an extended resource or a driver.
func (r *Rules) name(name string, rule Rule) error {
	if strings.Contains(name, "/") {
		if len(validation.IsQualifiedName(name)) > 0 {
			return fmt.Errorf("%q is no name of an extended resource, such as example.com/gpu",
				oneline.Cut(name, 64))
		}
	} else if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return fmt.Errorf("%q is neither an extended resource, such as example.com/gpu, nor a driver of "+
			"resource claims, such as gpu.example.com", oneline.Cut(name, 64))
	}
	if _, twice := r.Named[name]; twice {
		return fmt.Errorf("%s has two rules; keep one", name)
	}
	if r.Named == nil {
		r.Named = map[string]Rule{}
	}
	r.Named[name] = rule
	return nil
}

// Of returns the rule for a device: that of its resource, else that of its driver, else the usual one.
func (r Rules) Of(d Device) Rule {
	for _, name := range []string{d.Resource, d.Driver} {
		if rule, ok := r.Named[name]; ok && name != "" {
			return rule
		}
	}
	if r.Usual.Action == "" {
		return Rule{Action: None}
	}
	return r.Usual
}
