package decide

import "github.com/numalet/numalet/agent/placement/explain"

// Outcome is the word of admission on a pod.
type Outcome string

// Wait may be followed by any outcome, Admit by Resized and NotResized, each of which may come again,
// and by Released, Reject only by Released. Resized: the pod was allocated other resources; NotResized: it
// is not given those that it asks for. Released is the last one: the pod holds nothing any more, and that
// is recorded.
const (
	Admit      Outcome = "Admit"
	Wait       Outcome = "Wait"
	Reject     Outcome = "Reject"
	Resized    Outcome = "Resized"
	NotResized Outcome = "NotResized"
	Released   Outcome = "Released"
)

// Reasons of pods that wait.
const (
	ReasonWaitPlugin    = "WaitingForDevicePlugin"
	ReasonWaitResources = "WaitingForResources"
	ReasonWaitDevices   = "WaitingForHealthyDevices"
	ReasonWaitStore     = "WaitingForStateFile"
	ReasonHeld          = explain.ReasonHeld
)
