package statuses

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/numalet/numalet/internal/oneline"
)

// truncation says what is left out of a status that the API server does not accept as a whole. Of one
// that is too large messages go first, of one whose content is refused the parts that the API server
// names; then everything but the phase: a pod whose status cannot be written would never be deleted.
type truncation struct {
	// size is left out because the pod is too large. parts are left out because the API server
	// refuses their content, whole because it names no part, or refuses others each time; they are
	// reset with the next status.
	size, whole level
	parts       []part
	tries       int // with parts left out
}

// level says how much is left out.
type level int

// The levels.
const (
	nothing level = iota
	longMessages
	allMessages
	allButPhase
)

// shortMessage is the length of a shortened message in bytes.
const shortMessage = 256

// mostTries bounds the requests in which the API server refuses ever other parts of one status.
const mostTries = 4

// again resets what the API server refused, for another status, which it may accept.
func (t *truncation) again() { *t = truncation{size: t.size} }

// more reports whether the request for this status failed because of its content, and then leaves out
// more; false if nothing more can be left out.
func (t *truncation) more(err error, s v1.PodStatus) bool {
	switch {
	case tooLarge(err) && t.size < allButPhase:
		t.size++
	case apierrors.IsInvalid(err) && t.whole < allButPhase:
		parts := slices.DeleteFunc(refusedParts(err, s), func(p part) bool {
			return slices.Contains(t.parts, p)
		})
		if t.tries++; len(parts) == 0 || t.tries > mostTries {
			t.whole = allButPhase
		}
		t.parts = append(t.parts, parts...)
	default:
		return false
	}
	return true
}

// String says what is left out; "": nothing.
func (t truncation) String() string {
	switch level := max(t.size, t.whole); {
	case level == allButPhase:
		return "all but its phase and reason"
	case len(t.parts) > 0:
		return said(t.parts)
	case level == longMessages:
		return fmt.Sprintf("messages after %d bytes", shortMessage)
	case level == allMessages:
		return "messages"
	}
	return ""
}

// tooLarge reports whether the API server or etcd refused a request as too large.
func tooLarge(err error) bool {
	text := err.Error()
	return apierrors.IsRequestEntityTooLargeError(err) ||
		strings.Contains(text, "request is too large") ||
		strings.Contains(text, "message larger than max")
}

// apply returns the status; fields that are left out have the API server's values.
func (t truncation) apply(api, s v1.PodStatus) v1.PodStatus {
	level := max(t.size, t.whole)
	if level < allButPhase && len(t.parts) > 0 {
		var err error
		if s, err = without(s, api, t.parts); err != nil {
			level = allButPhase
		}
	}
	switch level {
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

// shortened cuts messages to at most n bytes.
func shortened(s v1.PodStatus, n int) v1.PodStatus {
	short := func(text string) string { return oneline.Head(text, n) }
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

// sorted sorts conditions by type.
func sorted(conditions []v1.PodCondition) []v1.PodCondition {
	return slices.SortedFunc(slices.Values(conditions), func(a, b v1.PodCondition) int {
		return cmp.Compare(a.Type, b.Type)
	})
}
