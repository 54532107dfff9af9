package histories

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// fieldsOf returns the fields of a pod's status that agents write. Facts about an attempt at a
// container have its number: one of two attempts may be missed, but is not the same as the other.
func (t *track) fieldsOf(p *v1.Pod) map[string]string {
	s := p.Status
	start := ""
	if s.StartTime != nil {
		start = s.StartTime.String()
	}
	out := map[string]string{
		"phase":   string(s.Phase),
		"reason":  s.Reason,
		"message": s.Message,
		"qos":     string(s.QOSClass),
		"ip":      t.number("ip", s.PodIP),
		"ips":     fmt.Sprint(len(s.PodIPs)),
		"host":    t.number("host", s.HostIP),
		"start":   t.number("start", start),
		"seen":    fmt.Sprint(s.ObservedGeneration),
	}
	attempts := int32(0)
	for _, c := range statuses(p) {
		attempts += c.RestartCount
		t.fieldsOfContainer("container "+c.Name+" ", c, out)
	}
	for _, c := range s.Conditions {
		out["condition "+string(c.Type)] = strings.TrimRight(
			fmt.Sprintf("#%d %s %s: %s", attempts, c.Status, c.Reason, c.Message), ": ")
	}
	return out
}

// absent is the value of a field that a status no longer has.
const absent = "absent"

// comesAndGoes reports whether statuses may lack the field.
func comesAndGoes(field string) bool {
	return strings.HasPrefix(field, "condition ") || strings.HasPrefix(field, "container ")
}

func statuses(p *v1.Pod) []v1.ContainerStatus {
	return slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses,
		p.Status.EphemeralContainerStatuses)
}

func (t *track) fieldsOfContainer(at string, c v1.ContainerStatus, out map[string]string) {
	attempt := fmt.Sprintf("#%d ", c.RestartCount)
	started := "unknown"
	if c.Started != nil {
		started = fmt.Sprint(*c.Started)
	}
	out[at+"state"] = attempt + state(c.State)
	out[at+"last"] = attempt + state(c.LastTerminationState)
	out[at+"ready"] = attempt + fmt.Sprint(c.Ready)
	out[at+"started"] = attempt + started
	out[at+"restarts"] = fmt.Sprint(c.RestartCount)
	out[at+"allocated"] = amounts(c.AllocatedResources)
	if r := c.Resources; r != nil {
		out[at+"resources"] = attempt + "requests " + amounts(r.Requests) + ", limits " + amounts(r.Limits)
	}
	out[at+"id"] = attempt + t.number(at+"id of "+attempt, c.ContainerID)
}

// amounts formats a list of resources.
func amounts(of v1.ResourceList) string {
	var out []string
	for name, q := range of {
		out = append(out, string(name)+" "+q.String())
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// isBeingMade has the reasons of containers that are being created: numalet also says what they
// wait for.
var isBeingMade = []string{"ContainerCreating", "PodInitializing"}

// state formats a container's state.
func state(s v1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running"
	case s.Terminated != nil:
		e := s.Terminated
		return strings.TrimSpace(fmt.Sprintf("terminated %s %d %s", e.Reason, e.ExitCode, e.Message))
	case s.Waiting != nil && slices.Contains(isBeingMade, s.Waiting.Reason):
		return "waiting " + s.Waiting.Reason
	case s.Waiting != nil:
		return strings.TrimSpace(fmt.Sprintf("waiting %s %s", s.Waiting.Reason, s.Waiting.Message))
	default:
		return "none"
	}
}
