package admission

import (
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// ReasonPlacement is the reason for a pod that asks for a placement which it may not choose.
const ReasonPlacement = "PlacementForbidden"

// Placement refuses pods whose annotations ask for a placement that there is none of, or that the
// rules do not let them choose.
func Placement(rules topology.Rules) Handler {
	return func(a Attempt) *Refusal {
		if _, err := podspec.Rules(a.Pod, rules); err != nil {
			return &Refusal{Reason: ReasonPlacement, Message: err.Error()}
		}
		return nil
	}
}

// roomFor is the room for a pod, by the rules that it asks for. One that runs keeps what it has,
// whatever it asks for.
func (s *Snapshot) roomFor(pod *v1.Pod, o allocation.Others, own allocation.Pod) allocation.Room {
	room := s.room(o, own)
	room.Rules, _ = podspec.Rules(pod, s.rules) // a handler has told of an error
	return room
}
