package node

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/topology"
)

// Facts are all that the status of a node is made of, besides the status that it had.
type Facts struct {
	Addresses Addresses
	// Capacity and Allocatable are the machine's.
	Capacity, Allocatable v1.ResourceList
	Placement             Placement
	Devices               Devices
	Info                  v1.NodeSystemInfo
	// Port is the kubelet API's; 0: there is none.
	Port    int32
	Runtime Runtime
	// NotReady is why the node is not ready; empty: it is.
	NotReady []string
	// Pressure has the types of conditions that hold: memory, disk, PIDs. Who watches these
	// resources sets them; until somebody does none holds.
	Pressure map[v1.NodeConditionType]bool
	// DeclaredFeatures are those of KEP-5328 that the node honours.
	DeclaredFeatures []string
	// VolumesInUse are the volumes that are attached to the node and that a pod desires or has
	// mounted, so that nobody detaches them. No type of volume that there is attaches any: a type
	// that does names those of its mounts and of the pods of podstatus.Store.Active.
	VolumesInUse []v1.UniqueVolumeName
}

// Addresses are those of the node.
type Addresses struct {
	All []v1.NodeAddress // nil: they stay as they are
	// Provided: a cloud controller manager sets them, so these are only for a node that has none yet.
	Provided bool
}

// Placement is what pods may ask for of where they are placed.
type Placement struct {
	// IsolatedCPUs is how many online CPUs are for pods that ask for isolated ones.
	IsolatedCPUs int
	// Rules are how pods are placed that ask for nothing else, and what they may choose.
	Rules topology.Rules
}

// Devices are what device plugins offer.
type Devices struct {
	// Capacity counts all devices of a resource, Allocatable the healthy ones.
	Capacity, Allocatable v1.ResourceList
	// Dead were ours and are no more.
	Dead []v1.ResourceName
}

// Runtime is what the container runtime has and can do.
type Runtime struct {
	Images   []v1.ContainerImage
	Handlers []v1.NodeRuntimeHandler
	// SupplementalGroupsPolicy: see cri.RuntimeStatus.
	SupplementalGroupsPolicy bool
}

// Status is the status that follows on old. What neither the kubelet nor we set stays as it was.
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
	s.VolumesInUse = f.VolumesInUse
	for _, c := range conditions(f, s) {
		s.Conditions = set(s.Conditions, c, now)
	}
	return s
}

// resources are the node's capacity and allocatable. Of resources that are not ours others say how
// many there are, and all of them may be requested.
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

// native reports whether a resource is one of Kubernetes itself that nodes measure.
func native(name v1.ResourceName) bool {
	switch name {
	case v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods, v1.ResourceEphemeralStorage:
		return true
	}
	return isHugePages(name)
}

// conditions are the four that are the kubelet's, in its words.
func conditions(f Facts, s v1.NodeStatus) []v1.NodeCondition {
	pressure := func(kind v1.NodeConditionType, holds, not [2]string) v1.NodeCondition {
		c := v1.NodeCondition{Type: kind, Status: v1.ConditionFalse,
			Reason: not[0], Message: not[1]}
		if f.Pressure[kind] {
			c.Status, c.Reason, c.Message = v1.ConditionTrue, holds[0], holds[1]
		}
		return c
	}
	ready := v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionTrue,
		Reason: "KubeletReady", Message: "kubelet is posting ready status"}
	if why := slices.Concat(f.NotReady, missing(s.Capacity)); len(why) > 0 {
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

// missing says which resources no node can be without.
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

// set puts a condition in the place of the one of its type, or behind all others. The time of the
// transition stays while the status does.
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

// Changed reports whether there is something in a status that is not yet known, besides that the
// node still lives.
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

// Event is something that happened to a node, in the kubelet's words.
type Event struct{ Type, Reason, Message string }

// Events are what the way from one status to the next means to people.
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

// Schedulable is the event of a node that is or is no longer to get pods.
func Schedulable(name string, is bool) Event {
	if is {
		return became(name, "NodeSchedulable")
	}
	return became(name, "NodeNotSchedulable")
}

func became(name, reason string) Event {
	return Event{v1.EventTypeNormal, reason, "Node " + name + " status is now: " + reason}
}

// transition is the reason of the event that a condition has another status; "" for those that are
// not ours.
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
