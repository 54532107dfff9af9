package nodestatus

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/topology"
)

// Facts holds everything that a node's status consists of, beside the previous status.
type Facts struct {
	Addresses Addresses
	// Capacity and Allocatable are the machine's.
	Capacity, Allocatable v1.ResourceList
	Placement             Placement
	Devices               Devices
	Info                  v1.NodeSystemInfo
	// Port is the port of the kubelet API; 0: there is none.
	Port    int32
	Runtime Runtime
	State
	// DeclaredFeatures lists the node's features (KEP-5328).
	DeclaredFeatures []string
	// VolumesInUse lists the volumes that are attached to the node and that a pod desires or has
	// mounted, so that the attach-detach controller does not detach them. A volume type that attaches
	// must name the volumes of its mounts and of the pods of podstatus.Store.Active.
	VolumesInUse []v1.UniqueVolumeName
	// MayBeInUse reports whether a volume stays in use that the status had in use: the record of one is
	// lost, and it may be this one. nil: none.
	MayBeInUse func(v1.UniqueVolumeName) bool
}

// Addresses holds the node's addresses.
type Addresses struct {
	All []v1.NodeAddress // nil: they do not change
	// Provided is set if a cloud controller manager sets them: they then apply only to a node that has
	// none yet.
	Provided bool
}

// Placement holds what pods may ask for in their placement.
type Placement struct {
	// IsolatedCPUs is the number of online CPUs for pods that ask for isolated ones.
	IsolatedCPUs int
	// Rules are the default rules of placement, and what pods may choose.
	Rules topology.Rules
}

// Devices holds what device plugins offer.
type Devices struct {
	// Capacity counts all devices of a resource, Allocatable the healthy ones.
	Capacity, Allocatable v1.ResourceList
	// Dead lists resources that were ours and no longer exist.
	Dead []v1.ResourceName
}

// Runtime holds the images and features of the container runtime.
type Runtime struct {
	Images   []v1.ContainerImage
	Handlers []v1.NodeRuntimeHandler
	// SupplementalGroupsPolicy: see cri.RuntimeStatus.
	SupplementalGroupsPolicy bool
}

// Status returns the status that follows old. Fields that neither the kubelet nor we set keep their
// values.
func Status(old v1.NodeStatus, f Facts, now metav1.Time) v1.NodeStatus {
	s := *old.DeepCopy()
	if f.Addresses.All != nil && !(f.Addresses.Provided && len(old.Addresses) > 0) {
		s.Addresses = f.Addresses.All
	}
	s.Capacity, s.Allocatable = resources(old, f)
	s.NodeInfo = f.Info
	s.DaemonEndpoints.KubeletEndpoint.Port = f.Port
	s.Images = f.Runtime.Images
	s.RuntimeHandlers = f.Runtime.Handlers
	s.Features = &v1.NodeFeatures{
		SupplementalGroupsPolicy: &f.Runtime.SupplementalGroupsPolicy,
	}
	s.DeclaredFeatures = slices.Sorted(slices.Values(f.DeclaredFeatures))
	s.VolumesInUse = volumesInUse(old.VolumesInUse, f)
	for _, c := range conditions(f, s) {
		s.Conditions = set(s.Conditions, c, now)
	}
	return s
}

// volumesInUse returns the volumes in use. Those of old whose records may be lost come last.
func volumesInUse(old []v1.UniqueVolumeName, f Facts) []v1.UniqueVolumeName {
	out := f.VolumesInUse
	for _, name := range old {
		if f.MayBeInUse != nil && !slices.Contains(f.VolumesInUse, name) && f.MayBeInUse(name) {
			out = append(slices.Clip(out), name)
		}
	}
	return out
}

// resources returns the node's capacity and allocatable. Others set the capacity of resources that
// are not ours; all of these may be requested.
func resources(old v1.NodeStatus, f Facts) (capacity, allocatable v1.ResourceList) {
	foreign := func(of v1.ResourceList) v1.ResourceList {
		out := v1.ResourceList{}
		for name, quantity := range of {
			if !native(name) && !slices.Contains(f.Devices.Dead, name) {
				out[name] = quantity
			}
		}
		return out
	}
	capacity, allocatable = foreign(old.Capacity), foreign(old.Allocatable)
	maps.Copy(allocatable, capacity)
	maps.Copy(capacity, f.Capacity)
	maps.Copy(capacity, f.Devices.Capacity)
	maps.Copy(allocatable, f.Allocatable)
	maps.Copy(allocatable, f.Devices.Allocatable)
	return capacity, allocatable
}

// native reports whether nodes measure the resource themselves.
func native(name v1.ResourceName) bool {
	switch name {
	case v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods, v1.ResourceEphemeralStorage:
		return true
	}
	return isHugePages(name)
}

// conditions returns the four conditions of the kubelet, in its words.
func conditions(f Facts, s v1.NodeStatus) []v1.NodeCondition {
	pressure := func(kind v1.NodeConditionType, holds, not [2]string) v1.NodeCondition {
		c := v1.NodeCondition{Type: kind, Status: v1.ConditionFalse,
			Reason: not[0], Message: not[1]}
		if slices.Contains(f.Pressure, kind) {
			c.Status, c.Reason, c.Message = v1.ConditionTrue, holds[0], holds[1]
		}
		return c
	}
	ready := v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionTrue,
		Reason: "KubeletReady", Message: "kubelet is posting ready status"}
	if why := slices.Concat(f.Unready(), missing(s.Capacity)); len(why) > 0 {
		ready.Status, ready.Reason = v1.ConditionFalse, "KubeletNotReady"
		ready.Message = strings.Join(why, ", ")
		if len(why) > 1 {
			ready.Message = "[" + ready.Message + "]"
		}
	}
	return []v1.NodeCondition{
		pressure(v1.NodeMemoryPressure,
			[2]string{"KubeletHasInsufficientMemory", "kubelet has insufficient memory available"},
			[2]string{"KubeletHasSufficientMemory", "kubelet has sufficient memory available"}),
		pressure(v1.NodeDiskPressure,
			[2]string{"KubeletHasDiskPressure", "kubelet has disk pressure"},
			[2]string{"KubeletHasNoDiskPressure", "kubelet has no disk pressure"}),
		pressure(v1.NodePIDPressure,
			[2]string{"KubeletHasInsufficientPID", "kubelet has insufficient PID available"},
			[2]string{"KubeletHasSufficientPID", "kubelet has sufficient PID available"}),
		ready,
	}
}

// missing reports required resources that the capacity lacks.
func missing(capacity v1.ResourceList) []string {
	var names []string
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods} {
		if _, ok := capacity[name]; !ok {
			names = append(names, string(name))
		}
	}
	if names == nil {
		return nil
	}
	return []string{"missing node capacity for resources: " + strings.Join(names, ", ")}
}

// set replaces the condition of the same type, or appends it. The transition time changes only with
// the status.
func set(list []v1.NodeCondition, c v1.NodeCondition, now metav1.Time) []v1.NodeCondition {
	c.LastHeartbeatTime, c.LastTransitionTime = now, now
	at := slices.IndexFunc(list, func(is v1.NodeCondition) bool { return is.Type == c.Type })
	if at < 0 {
		return append(list, c)
	}
	if list[at].Status == c.Status {
		c.LastTransitionTime = list[at].LastTransitionTime
	}
	list[at] = c
	return list
}

// Changed reports whether the status differs in more than heartbeats.
func Changed(old, now v1.NodeStatus) bool {
	silent := func(s v1.NodeStatus) v1.NodeStatus {
		s.Conditions = slices.Clone(s.Conditions)
		for i := range s.Conditions {
			s.Conditions[i].LastHeartbeatTime = metav1.Time{}
		}
		return s
	}
	return !apiequality.Semantic.DeepEqual(silent(old), silent(now))
}

// Event is an event of a node, in the kubelet's words.
type Event struct{ Type, Reason, Message string }

// Events returns the events for the change from one status to the next.
func Events(name string, old, now v1.NodeStatus) []Event {
	var out []Event
	if was, is := old.NodeInfo.BootID, now.NodeInfo.BootID; was != "" && was != is {
		out = append(out, Event{v1.EventTypeWarning, "Rebooted",
			"Node " + name + " has been rebooted, boot id: " + is})
	}
	for _, c := range now.Conditions {
		at := slices.IndexFunc(old.Conditions,
			func(was v1.NodeCondition) bool { return was.Type == c.Type })
		if at >= 0 && old.Conditions[at].Status == c.Status {
			continue
		}
		if reason := transition(c); reason != "" {
			out = append(out, became(name, reason))
		}
	}
	return out
}

// Schedulable returns the event of a node that starts or stops accepting pods.
func Schedulable(name string, is bool) Event {
	if is {
		return became(name, "NodeSchedulable")
	}
	return became(name, "NodeNotSchedulable")
}

func became(name, reason string) Event {
	return Event{v1.EventTypeNormal, reason, "Node " + name + " status is now: " + reason}
}

// transition returns the reason of the event for a condition's new status; "" for conditions that
// are not ours.
func transition(c v1.NodeCondition) string {
	reasons := map[v1.NodeConditionType][2]string{
		v1.NodeReady:          {"NodeReady", "NodeNotReady"},
		v1.NodeMemoryPressure: {"NodeHasInsufficientMemory", "NodeHasSufficientMemory"},
		v1.NodeDiskPressure:   {"NodeHasDiskPressure", "NodeHasNoDiskPressure"},
		v1.NodePIDPressure:    {"NodeHasInsufficientPID", "NodeHasSufficientPID"},
	}[c.Type]
	if c.Status == v1.ConditionTrue {
		return reasons[0]
	}
	return reasons[1]
}
