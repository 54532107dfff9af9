package failure

import (
	"cmp"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Device is a device that a container holds.
type Device struct {
	Pod       types.UID `json:"pod"`
	Container string    `json:"container"`
	// Resource is the extended resource that the container asked for, or "claim NAME".
	Resource string `json:"resource"`
	ID       string `json:"id"`
	// Driver and Pool are set for devices of resource claims.
	Driver string `json:"driver,omitempty"`
	Pool   string `json:"pool,omitempty"`
}

func (d Device) compare(o Device) int {
	return cmp.Or(cmp.Compare(d.Pod, o.Pod), cmp.Compare(d.Container, o.Container),
		cmp.Compare(d.Resource, o.Resource), cmp.Compare(d.Driver, o.Driver),
		cmp.Compare(d.Pool, o.Pool), cmp.Compare(d.ID, o.ID))
}

// Held is a device with its present health.
type Held struct {
	Device
	Health v1.ResourceHealthStatus
	// Exempt: nothing is done about it, since the pod does not own it (administrative access), or its
	// container has ended.
	Exempt bool
}

// Pod is a pod that holds devices.
type Pod struct {
	UID types.UID
	// Workload is its controller; "": it has none.
	Workload types.UID
	// Leaving: it is being ended anyway.
	Leaving    bool
	Containers map[string]Container
	Devices    []Held
}

// Container is a container of such a pod.
type Container struct {
	ID      string // "": it does not run
	Started time.Time
}

// Input holds what a step depends on beside the state.
type Input struct {
	Now time.Time
	// Pods hold devices, and are known to their source.
	Pods []Pod
	// Known reports whether a pod is, or may be, among the node's.
	Known func(types.UID) bool
}

// Act records what was done about failed devices of a container, or of a pod.
type Act struct {
	Pod      types.UID `json:"pod"`
	Workload types.UID `json:"workload,omitempty"`
	Action   Action    `json:"action"`
	// Container is "" for FailPod. ContainerID is that of the run that is stopped; "": none is, since
	// the container did not run, or had begun after its device became unhealthy.
	Container   string `json:"container,omitempty"`
	ContainerID string `json:"containerID,omitempty"`
	// Devices are those that it was done for, as long as they are not healthy.
	Devices []Device  `json:"devices,omitempty"`
	Since   time.Time `json:"since"`
	At      time.Time `json:"at"`
	// Message stands in the pod's status for FailPod, and Until when its grace period ends. The owner
	// of the acts sets both.
	Message string    `json:"message,omitempty"`
	Until   time.Time `json:"until"`
}

func (a Act) disrupts() bool { return a.Action == FailPod || a.ContainerID != "" }

// suspect is an unhealthy device that was not acted on.
type suspect struct {
	since time.Time
	until time.Time // another pod of the workload comes first, which was told; zero: none
}

// State records what was seen and done. It is a value: Step returns the next one.
type State struct {
	suspects map[Device]suspect
	// Acts are durable; the oldest come first.
	Acts []Act
	// Wake is when the next step is due; zero: when something changes.
	Wake time.Time
}

// Outlook says since when a device is unhealthy, and what was or will be done about it.
type Outlook struct {
	Since  time.Time `json:"since"`
	Action Action    `json:"action"`
	// Due is when it is done, unless the device is healthy by then, and Done when it was.
	Due  time.Time `json:"due,omitzero"`
	Done time.Time `json:"done,omitzero"`
}

// Outlooks returns what is known of the devices that are unhealthy, or were when they were acted on and
// have not been healthy since.
func (s State) Outlooks(rules Rules) map[Device]Outlook {
	out := map[Device]Outlook{}
	for _, a := range s.Acts {
		for _, d := range a.Devices {
			out[d] = Outlook{Since: a.Since, Action: a.Action, Done: a.At}
		}
	}
	for d, one := range s.suspects {
		o := Outlook{Since: one.since, Action: rules.Of(d).Action}
		if o.Action != None {
			o.Due = one.since.Add(rules.Of(d).HoldOff)
		}
		if one.until.After(o.Due) {
			o.Due = one.until
		}
		out[d] = o
	}
	return out
}

// Suspects reports whether the device is unhealthy and was not acted on.
func (s State) Suspects(d Device) bool {
	_, is := s.suspects[d]
	return is
}

// Kind is a kind of Effect.
type Kind int

// The effects.
const (
	Planned   Kind = iota // it is told what will be done, unless the devices are healthy at Due
	Averted               // nothing is done: the devices are not unhealthy any more
	Postponed             // it is done at Due, since Other, of the same workload, came first
	Acted                 // Act is done
)

// Effect says what to report or do about devices of a container, or of the pod for FailPod.
type Effect struct {
	Kind      Kind
	Pod       types.UID
	Container string
	Rule      Rule
	Devices   []Device // sorted
	Due       time.Time
	Health    v1.ResourceHealthStatus // of Averted
	Other     types.UID               // of Postponed
	Act       Act                     // of Acted
}
