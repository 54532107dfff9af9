package admission

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/machine"
	"github.com/numalet/numalet/deviceplugin"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// Snapshot is all that admission decides with at one moment. It is a value: placing a pod gives
// another one.
type Snapshot struct {
	view
	rules    topology.Rules
	handlers []Handler
	ledger   allocation.Ledger
	// ahead is what is only counted of the claims of the pods that came before.
	ahead v1.ResourceList
	// patient: a pod that lacks something may wait for it.
	patient bool
}

// view is the node but for its pods.
type view struct {
	hardware  machine.Hardware
	inventory deviceplugin.Inventory
	node      *v1.Node
}

func (c *Config) view() view {
	v := view{hardware: c.Hardware(), inventory: c.Plugins.Inventory()}
	if c.Node != nil {
		v.node = c.Node()
	}
	return v
}

func (c *Config) snapshot(v view, l allocation.Ledger) Snapshot {
	return Snapshot{
		view: v, rules: c.Rules, handlers: c.Handlers, ledger: l,
		ahead: l.Requests(allocation.Claims), patient: c.Wait > 0,
	}
}

// request is what is asked for a pod, and what it has already.
type request struct {
	pod *v1.Pod
	// in is the pod's entry in the ledger; "": it has none.
	in  types.UID
	own allocation.Pod // assigned to it
	// runs: it keeps its own, and is admitted whatever it lacks.
	runs bool
	// claimed: it has a claim, to that.
	claimed bool
	// madeWay: other pods have made way for it.
	madeWay bool
	claim   allocation.Pod
	advice  allocation.Advice
	// silent are the resources whose plugins are not asked.
	silent sets.Set[string]
}

// now is the room of a pod beside all others. What is only counted is of nothing in particular: it
// is for those who came first, so that of the claims only those ahead count. Claims are on what
// terminating pods give back, as far as that goes, so that of the two only the greater counts.
func (s *Snapshot) now(r *request) allocation.Room {
	o := s.ledger.Beside(r.in, podspec.DeviceResources(r.pod))
	room := s.roomFor(r.pod, o, r.own)
	room.Others = []v1.ResourceList{
		o.Requests[allocation.Stays], greater(o.Requests[allocation.Goes], s.ahead),
	}
	if r.runs {
		room.Keep = allocation.KeepAll
	}
	return room
}

// later is the room when the terminating pods are gone. A claim is kept as long as it is good.
func (s *Snapshot) later(r *request) allocation.Room {
	o := s.ledger.BesideLasting(r.in, podspec.DeviceResources(r.pod))
	room := s.roomFor(r.pod, o, r.own)
	room.Others = []v1.ResourceList{
		o.Requests[allocation.Stays], o.Requests[allocation.Claims],
	}
	if r.claimed && r.own.IsEmpty() {
		room.Own, room.Keep = r.claim, allocation.KeepWhole
	}
	return room
}

func (s *Snapshot) room(o allocation.Others, own allocation.Pod) allocation.Room {
	h := s.hardware
	return allocation.Room{
		View: allocation.View{
			Machine: h.Machine, CPUs: h.CPUs, Memory: h.Memory,
			Rules: s.rules, Options: h.Options,
			Inventory: s.inventory, Taken: o.Taken, Sharing: o.Sharing, Own: own,
		},
		Allocatable: h.Allocatable,
	}
}

// greater has the greater of both of each resource.
func greater(a, b v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	maps.Copy(out, a)
	for name, quantity := range b {
		if other := out[name]; quantity.Cmp(other) > 0 {
			out[name] = quantity
		}
	}
	return out
}
