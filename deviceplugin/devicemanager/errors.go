package devicemanager

import "fmt"

// The kubelet's texts: they end up in the message of a rejected pod.

// UnavailableError says that too few devices are free. It can clear when a container ends.
type UnavailableError struct {
	Resource             string
	Requested, Available int
	// Cordoned is the number of devices withheld by cordons, which the kubelet does not know.
	Cordoned int
	// Claimed says, for people, which devices resource claims have, which the kubelet does not know.
	Claimed string
}

func (e *UnavailableError) Error() string {
	text := fmt.Sprintf("requested number of devices unavailable for %s. Requested: %d, "+
		"Available: %d", e.Resource, e.Requested, e.Available)
	if e.Cordoned > 0 {
		text += fmt.Sprintf("; %d devices are cordoned", e.Cordoned)
	}
	if e.Claimed != "" {
		text += "; " + e.Claimed
	}
	return text
}

// UnhealthyError says that no device is healthy or, with Held, that a device which the container
// already holds is not. None: the plugin lists no device at all, for which the kubelet has no text
// of its own.
type UnhealthyError struct {
	Resource   string
	Held, None bool
}

func (e *UnhealthyError) Error() string {
	why := "no healthy devices present"
	if e.Held {
		why = "previously allocated devices are no longer healthy"
	}
	text := why + "; cannot allocate unhealthy devices " + e.Resource
	if e.None {
		text += ": its device plugin lists no devices"
	}
	return text
}

// UnregisteredError says that no plugin has registered a resource whose devices pods hold.
type UnregisteredError struct{ Resource string }

func (e *UnregisteredError) Error() string {
	return "cannot allocate unregistered device " + e.Resource
}

// StoppedError says that the plugin of a resource is not connected now. Problem, if known, says
// why; the kubelet has no such text.
type StoppedError struct{ Endpoint, Problem string }

func (e *StoppedError) Error() string {
	text := fmt.Sprintf("endpoint %s has been stopped", e.Endpoint)
	if e.Problem != "" {
		text += ": " + e.Problem
	}
	return text
}

// AnswerError says that a plugin's answer does not fit the question.
type AnswerError struct{ What string }

func (e *AnswerError) Error() string { return e.What }
