package decide

import "github.com/numalet/numalet/deviceplugin/dra/claim"

// Cause says what a pod waits for.
type Cause int

const (
	// Nothing: the pod does not wait, or nothing was said of it yet.
	Nothing Cause = iota
	// ForResources: other pods have them, which terminate or make way.
	ForResources
	// ForDevices: they are unhealthy now.
	ForDevices
	// ForPlugin: a device plugin is away, or has yet to answer.
	ForPlugin
	// ForClaim and ForDriver: the pod's resource claims are not ready.
	ForClaim
	ForDriver
	// ForObjects: the API server has yet to have them, or to say whether it has.
	ForObjects
	// ForStore: nothing can be recorded.
	ForStore
	// ForController: others of its controller were rejected lately.
	ForController
	// ForHandler: a handler, whose reason is told.
	ForHandler
)

var reasons = [...]string{
	ForResources: ReasonWaitResources, ForDevices: ReasonWaitDevices, ForPlugin: ReasonWaitPlugin,
	ForClaim: claim.ReasonWaitClaim, ForDriver: claim.ReasonWaitDriver, ForObjects: ReasonWaitObjects,
	ForStore: ReasonWaitStore, ForController: ReasonHeld, ForHandler: "",
}

// Reason returns the reason that is told; "": the cause has none of its own.
func (c Cause) Reason() string { return reasons[c] }

// causeOf returns the cause of a claim that is not ready.
func causeOf(l claim.Lack) Cause {
	if l.Reason == claim.ReasonWaitDriver {
		return ForDriver
	}
	return ForClaim
}
