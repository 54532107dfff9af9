package statuses

import (
	"cmp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// cut is what of a status is left out because the API server does not take all of it. What people
// read goes first, then all but the phase: a pod whose status cannot be written is never deleted.
type cut struct {
	// size is left out because the pod is too large; whole because the API server refuses something
	// in the status, and tried again with the next status.
	size, whole level
}

// level is how much is left out.
type level int

// The levels.
const (
	nothing level = iota
	longMessages
	allMessages
	allButPhase
)

// shortMessage is what is left of a long message, in bytes.
const shortMessage = 256

// again takes that there is another status, which the API server may take.
func (c *cut) again() { c.whole = nothing }

// more reports whether the request failed for what is in it, and leaves out more from now on; not
// if there is nothing more to leave out.
func (c *cut) more(err error) bool {
	switch {
	case tooLarge(err) && c.size < allButPhase:
		c.size++
	case apierrors.IsInvalid(err) && c.whole < allButPhase:
		c.whole = allButPhase
	default:
		return false
	}
	return true
}

// tooLarge reports whether API server or etcd found a request too large.
func tooLarge(err error) bool {
	text := err.Error()
	return apierrors.IsRequestEntityTooLargeError(err) ||
		strings.Contains(text, "request is too large") ||
		strings.Contains(text, "message larger than max")
}

// apply is the status with what is to be left out as the API server has it.
func (c cut) apply(api, s v1.PodStatus) v1.PodStatus {
	switch max(c.size, c.whole) {
	case nothing:
		return s
	case longMessages:
		return shortened(s, shortMessage)
	case allMessages:
		return shortened(s, 0)
	default:
		api.Phase, api.Reason = s.Phase, s.Reason
		return api
	}
}

// shortened has messages of at most n bytes.
func shortened(s v1.PodStatus, n int) v1.PodStatus {
	short := func(text string) string {
		if len(text) <= n {
			return text
		}
		return strings.ToValidUTF8(text[:n], "")
	}
	state := func(c v1.ContainerState) v1.ContainerState {
		if t := c.Terminated; t != nil {
			end := *t
			end.Message = short(t.Message)
			c.Terminated = &end
		}
		if w := c.Waiting; w != nil {
			c.Waiting = &v1.ContainerStateWaiting{Reason: w.Reason, Message: short(w.Message)}
		}
		return c
	}
	s.Message = short(s.Message)
	s.Conditions = slices.Clone(s.Conditions)
	for i := range s.Conditions {
		if c := &s.Conditions[i]; c.Status != v1.ConditionTrue {
			c.Message = short(c.Message)
		}
	}
	for _, list := range []*[]v1.ContainerStatus{
		&s.InitContainerStatuses, &s.ContainerStatuses, &s.EphemeralContainerStatuses,
	} {
		*list = slices.Clone(*list)
		for i := range *list {
			c := &(*list)[i]
			c.State, c.LastTerminationState = state(c.State), state(c.LastTerminationState)
		}
	}
	return s
}

// sorted has the conditions by type.
func sorted(conditions []v1.PodCondition) []v1.PodCondition {
	return slices.SortedFunc(slices.Values(conditions), func(a, b v1.PodCondition) int {
		return cmp.Compare(a.Type, b.Type)
	})
}
