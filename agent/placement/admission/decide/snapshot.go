package decide

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology"
)

// Snapshot holds all that one decision depends on, the request apart. It is a value: With places a
// pod and returns another one.
type Snapshot struct {
	View
	Rules    topology.Rules
	Handlers []Handler
	// ResizeRule is the node's; nil: only room counts.
	ResizeRule ResizeRule
	// ResizePreempts: pods make way for the resize of a critical one.
	ResizePreempts bool
	Ledger         allocation.Ledger
	// Ahead sums the requests of the claims of the pods that came before, and Growth what resizes wait
	// for that came before.
	Ahead, Growth v1.ResourceList
	// Patient: a pod that lacks something may wait for it.
	Patient bool
	// Endless: a pod that is not patient waits for its resource claims all the same, without end and
	// with nothing of the node, as with the kubelet.
	Endless bool
}

// View is the node without its pods.
type View struct {
	Hardware  machine.Hardware
	Inventory devicemanager.Inventory
	// Clustered: the API server has, or will have, an object of the node. Node is what is known of it; nil:
	// nothing.
	Clustered bool
	Node      *v1.Node
	// Advertised has the extended resources of the node's status; nil: there is no status, or it is not
	// known. InCluster sets it.
	Advertised v1.ResourceList
	State      nodestatus.State
}

// Request is a pod to decide on, and what it has already.
type Request struct {
	Demand
	// In is the pod's key in the ledger; "": it is not in there.
	In  types.UID
	Own allocation.Pod // assigned to it
	// Runs: it keeps its own and is admitted whatever it lacks.
	Runs bool
	// Claimed: it waits with Claim.
	Claimed bool
	Claim   allocation.Pod
	// HasPreempted: other pods were preempted for it.
	HasPreempted bool
	Advice       allocation.Advice
	// ResourceClaims are known of it now.
	ResourceClaims allocation.PodClaims
	// Silent names the resources whose plugins are not asked.
	Silent sets.Set[string]
}

// Now returns the pod's room beside all others. Resources that are only counted go to the pod that came
// first, so only the claims ahead of the pod count. Pods claim what terminating pods will give back, so
// only the greater of both sums counts.
func (s *Snapshot) Now(r *Request) allocation.Room {
	o := s.Ledger.Beside(r.In, r.Devices)
	room := s.roomFor(r, o)
	room.ClaimHolder = s.claimHolder(r, false)
	room.Others = []v1.ResourceList{
		o.Requests[allocation.Held],
		Greater(o.Requests[allocation.Terminating], allocation.AddRequests(s.Ahead, s.Growth)),
	}
	if r.Runs {
		room.Keep = allocation.KeepAll
	}
	return room
}

// Later returns the pod's room once the terminating pods are gone. The pod keeps a claim as long as
// that is good.
func (s *Snapshot) Later(r *Request) allocation.Room {
	o := s.Ledger.BesideLasting(r.In, r.Devices)
	room := s.roomFor(r, o)
	room.ClaimHolder = s.claimHolder(r, true)
	room.Others = []v1.ResourceList{
		o.Requests[allocation.Held], o.Requests[allocation.Claimed], s.Growth,
	}
	if r.Claimed && r.Own.IsEmpty() {
		room.Own, room.Keep = r.Claim, allocation.KeepWhole
	}
	return room
}

// claimHolder names other pods that use a claim.
func (s *Snapshot) claimHolder(r *Request, lasting bool) func(types.UID) string {
	return func(uid types.UID) string { return s.Ledger.Without(r.In).ClaimHolder(uid, lasting) }
}

// roomFor returns the room under the rules that the pod asks for. A running pod keeps what it has,
// whatever it asks for.
func (s *Snapshot) roomFor(r *Request, o allocation.Others) allocation.Room {
	room := s.room(o, r.Own)
	room.Rules, room.Chosen = r.Rules, r.Chosen
	room.Claims, room.Advertised = r.ResourceClaims, s.advertisedFor(r)
	return room
}

func (s *Snapshot) room(o allocation.Others, own allocation.Pod) allocation.Room {
	h := s.Hardware
	return allocation.Room{
		View: allocation.View{
			Machine: h.Machine, CPUs: h.CPUs, Memory: h.Memory,
			Rules: s.Rules, Options: h.Options,
			Inventory: s.Inventory, Advertised: s.Advertised, Taken: o.Taken, Sharing: o.Sharing, Own: own,
			Holder: s.Ledger.HolderOf, CPUDriver: h.CPUDriver,
		},
		Allocatable: h.Allocatable,
	}
}

// advertisedFor returns the extended resources of the node's status as they count for the pod. As long as
// the API server has not told of the node, nothing is counted for a pod that runs, since it has begun
// with what there was, or for one that waits no longer.
func (s *Snapshot) advertisedFor(r *Request) v1.ResourceList {
	if s.Node == nil && (r.Runs || !s.Patient) && s.Clustered {
		return v1.ResourceList{}
	}
	return s.Advertised
}

// Greater returns the greater amount of each resource.
func Greater(a, b v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	maps.Copy(out, a)
	for name, quantity := range b {
		if other := out[name]; quantity.Cmp(other) > 0 {
			out[name] = quantity
		}
	}
	return out
}
