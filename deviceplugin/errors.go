package deviceplugin

import "fmt"

// The texts of these errors are the kubelet's: they end up in the message of a rejected pod.

// UnavailableError says that too few devices are free. It can clear when a container ends.
type UnavailableError struct {
	Resource             string
	Requested, Available int
	// Cordoned is how many devices are not given out since somebody said so, of which the kubelet
	// has no words.
	Cordoned int
}

func (e *UnavailableError) Error() string {
	text := fmt.Sprintf("requested number of devices unavailable for %s. Requested: %d, "+
		"Available: %d", e.Resource, e.Requested, e.Available)
	if e.Cordoned > 0 {
		text += fmt.Sprintf("; %d devices are cordoned", e.Cordoned)
	}
	return text
}

// UnhealthyError says that no device is healthy, or with Held, that one of those that the
// container already holds is not. None: the plugin lists no device at all, for which the kubelet
// has no other words.
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

// UnregisteredError says that no plugin has registered a resource of which pods have devices.
type UnregisteredError struct{ Resource string }

func (e *UnregisteredError) Error() string {
	return "cannot allocate unregistered device " + e.Resource
}

// StoppedError says that the plugin of a resource is not connected at the moment. Problem says why,
// if that is known yet, for which the kubelet has no words.
type StoppedError struct{ Endpoint, Problem string }

func (e *StoppedError) Error() string {
	text := fmt.Sprintf("endpoint %s has been stopped", e.Endpoint)
	if e.Problem != "" {
		text += ": " + e.Problem
	}
	return text
}

// AnswerError says that a plugin's answer is not one to the question.
type AnswerError struct{ What string }

func (e *AnswerError) Error() string { return e.What }
