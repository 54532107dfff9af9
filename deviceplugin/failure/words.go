package failure

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/oneline"
)

// Reasons of events. The kubelet has none. ReasonFailed is also that of the status of a failed pod.
const (
	ReasonPlanned   = "DeviceFailurePlanned"
	ReasonAverted   = "DeviceFailureAverted"
	ReasonPostponed = "DeviceFailurePostponed"
	ReasonFailed    = "DeviceFailed"
)

// Setting is the flag that has something done.
const Setting = "--device-failure-policy"

// Facts hold what the words need beside an effect.
type Facts struct {
	// Why says why the devices are unhealthy, in the words of their plugin or driver; "": unknown.
	Why string
	// Never: the container's restart policy is Never.
	Never bool
	// Other is the namespace and name of the effect's other pod; "": it is gone.
	Other string
	// Running: the container runs.
	Running bool
}

// Event returns the event that tells of an effect.
func (e Effect) Event(f Facts) (kind, reason, message string) {
	devices := e.named()
	switch e.Kind {
	case Planned:
		when := "now"
		if e.Rule.HoldOff > 0 {
			when = "in " + e.Rule.HoldOff.String() + ", unless that is over by then"
		}
		return v1.EventTypeWarning, ReasonPlanned, fmt.Sprintf("%s %s: %s is unhealthy%s (%s)",
			e.will(f), when, devices, because(f.Why), Setting)
	case Averted:
		how := "healthy again"
		if e.Health == v1.ResourceHealthStatusUnknown {
			how = "not known to be unhealthy any more: its health is unknown"
		}
		return v1.EventTypeNormal, ReasonAverted, fmt.Sprintf("%s is %s: nothing is done", devices, how)
	case Postponed:
		return v1.EventTypeNormal, ReasonPostponed, fmt.Sprintf(
			"%s, for %s, but not before %s: pod %s of the same controller was disrupted a moment ago "+
				"(--device-failure-spacing)", e.will(f), devices, e.Due.UTC().Format(time.RFC3339),
			cmp.Or(f.Other, string(e.Other)))
	case Acted:
		return v1.EventTypeWarning, ReasonFailed, e.Failed(f) + "; " + e.done(f)
	}
	return "", "", ""
}

// Failed says which devices failed, for how long and why. It is the message of a failed pod's status.
func (e Effect) Failed(f Facts) string {
	return fmt.Sprintf("%s has been unhealthy for %s%s", capital(e.named()),
		e.Act.At.Sub(e.Act.Since).Round(time.Second), because(f.Why))
}

// will says what is going to be done.
func (e Effect) will(f Facts) string {
	switch {
	case e.Rule.Action == FailPod:
		return "The pod is ended and fails"
	case f.Never:
		return "Container " + e.Container + " is stopped, and not started again since its restart policy is Never,"
	default:
		return "Container " + e.Container + " is restarted"
	}
}

// done says what is done, and what not.
func (e Effect) done(f Facts) string {
	const stays = "it keeps its devices, and nothing more is done while they stay unhealthy; delete the " +
		"pod to have others chosen"
	name := "container " + e.Container
	switch {
	case e.Rule.Action == FailPod:
		return "the pod is ended and fails"
	case e.Rule.Action == Event:
		return name + " goes on; delete the pod to have another device chosen"
	case e.Act.ContainerID == "" && f.Running:
		return name + " is not restarted, since it has begun after that: " + stays
	case e.Act.ContainerID == "":
		return name + " is not restarted, since it does not run: " + stays
	case f.Never:
		return name + " is stopped, and not started again since its restart policy is Never"
	default:
		return name + " is restarted once: " + stays
	}
}

// named names the devices, all of a pod or of a container.
func (e Effect) named() string {
	var parts []string
	for at := 0; at < len(e.Devices); {
		first, ids := e.Devices[at], []string{}
		for ; at < len(e.Devices) && e.Devices[at].Resource == first.Resource &&
			e.Devices[at].Driver == first.Driver; at++ {
			ids = append(ids, e.Devices[at].ID)
		}
		text := "device " + devicemanager.Few(ids) + " of " + first.Resource
		if first.Driver != "" {
			text += " (driver " + first.Driver + ")"
		}
		parts = append(parts, text)
	}
	return oneline.Of(strings.Join(parts, ", "))
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ", " + oneline.Of(why)
}

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// String says, for people, since when a device is unhealthy and what becomes of its container.
func (o Outlook) String(now time.Time) string {
	text := "unhealthy for " + now.Sub(o.Since).Round(time.Second).String()
	does := map[Action]string{Event: "an event tells of it", RestartContainer: "the container is restarted",
		FailPod: "the pod is ended and fails"}[o.Action]
	did := map[Action]string{Event: "an event told of it", RestartContainer: "the container was restarted once",
		FailPod: "the pod was ended"}[o.Action]
	switch {
	case !o.Done.IsZero():
		return fmt.Sprintf("%s; %s %s ago", text, did, now.Sub(o.Done).Round(time.Second))
	case !o.Due.IsZero():
		return fmt.Sprintf("%s; in %s %s, unless it is healthy by then", text,
			max(o.Due.Sub(now), 0).Round(time.Second), does)
	}
	return text
}
