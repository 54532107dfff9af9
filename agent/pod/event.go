package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/podspec"
)

// EventKind is a kind of Event.
type EventKind string

// The events. All but the first seven are answers to effects.
const (
	// Desired: a source wants Pod to run; also when its spec changed. Runtime is what the runtime
	// has of it.
	Desired EventKind = "Desired"
	// Deleted: the API server wants Pod, which has a deletion timestamp, ended; its status is kept
	// until Removed.
	Deleted EventKind = "Deleted"
	// Retried: the source gives Pod anew as it was: somebody wants a refusal thought over.
	Retried EventKind = "Retried"
	// Removed: the source has Pod no more.
	Removed EventKind = "Removed"
	// Orphaned: something of Pod was found on the node. It means nothing for a pod that has a
	// record.
	Orphaned EventKind = "Orphaned"
	// Killed: the node ends the pod for Why, within Grace.
	Killed EventKind = "Killed"
	// Ending: the pod has come to its end by itself, and others are about to hear of it. Something
	// of it may still run.
	Ending EventKind = "Ending"
	// Observed: the runtime has of the pod what Runtime says.
	Observed EventKind = "Observed"

	// Admitted: the pod has its place; Why says what it lacks, if anything.
	Admitted EventKind = "Admitted"
	// Waits: the pod has no place yet.
	Waits EventKind = "Waits"
	// Refused: the pod failed admission.
	Refused EventKind = "Refused"
	// Released: admission has nothing of the pod any more.
	Released EventKind = "Released"
	// Ended: nothing of the pod runs any more, and its worker keeps it so.
	Ended EventKind = "Ended"
	// Gone: nothing of the pod is left on the node, and its worker has returned.
	Gone EventKind = "Gone"
)

// Event is something that happened to a pod.
type Event struct {
	Kind EventKind
	// Pod is set in Desired, Deleted, Retried, Removed and Orphaned, and in Admitted to the pod as it
	// was decided on: its source may have it otherwise by then.
	Pod *v1.Pod
	// Runtime is set in Desired, Deleted and Observed.
	Runtime Runtime
	// Why is set in Admitted, Waits, Refused and Killed.
	Why Why
	// Grace is set in Killed: how long the containers have to exit.
	Grace time.Duration
}

// Runtime is what the runtime has of a pod.
type Runtime struct {
	// Recorded: there is a sandbox or a container, dead or alive.
	Recorded bool
	// Running: a sandbox is ready.
	Running bool
	// Ended: by its records, or by what the API server says, the pod has come to its end and must
	// not run again.
	Ended bool
	// Admitted are the resources that an earlier run of the agent admitted it with; nil: that is not
	// known.
	Admitted *podspec.Resources
}

// Why is a reason in CamelCase and a message for people.
type Why struct {
	Reason, Message string
	// Explained is the gist of an explanation, for the event alone.
	Explained string
	// Silent: it is in other words what was told before.
	Silent bool
}

// EffectKind is a kind of Effect.
type EffectKind string

// The effects.
const (
	// Submit asks admission for Pod; Adopt says that it runs already.
	Submit EffectKind = "Submit"
	// Leave tells admission that the pod has begun to end, or with Ended that it has come to its end
	// by itself.
	Leave EffectKind = "Leave"
	// Release asks admission to give back what the pod holds.
	Release EffectKind = "Release"
	// Run has the worker bring Pod to run, or follow its changed spec.
	Run EffectKind = "Run"
	// Terminate has the worker end Pod; Why and Grace are set if the node ends it.
	Terminate EffectKind = "Terminate"
	// Remove is Terminate, and takes away what is left of Pod, which may be an Orphan.
	Remove EffectKind = "Remove"
	// Hasten has the worker that removes Pod know of its grace period, which may be a shorter one.
	// A worker that has returned has nothing to hasten.
	Hasten EffectKind = "Hasten"
	// Write records a status of Pod, of kind Status and for Why.
	Write EffectKind = "Write"
	// Clear says that the pod is cleared away: nothing of it runs, its volumes and its cgroup are
	// gone, and it holds nothing. One that the API server wants deleted it may forget, once it has
	// its last status.
	Clear EffectKind = "Clear"
	// Infeasible tells that the pod is not given the resources of Wanted.
	Infeasible EffectKind = "Infeasible"
	// Forget drops the status of the pod.
	Forget EffectKind = "Forget"
	// Tell records an event of Kubernetes, a warning or a normal one, with Why.
	Tell EffectKind = "Tell"
)

// StatusKind is what a status says that does not come from the runtime.
type StatusKind string

// The kinds of status.
const (
	// StatusKept: only the spec is another one.
	StatusKept StatusKind = "Kept"
	// StatusPending: nothing is known of the pod but that it is desired.
	StatusPending StatusKind = "Pending"
	// StatusWaiting, StatusAdmitted and StatusRejected are what admission said.
	StatusWaiting  StatusKind = "Waiting"
	StatusAdmitted StatusKind = "Admitted"
	StatusRejected StatusKind = "Rejected"
)

// Effect is something to be done for a pod.
type Effect struct {
	Kind  EffectKind
	Pod   *v1.Pod
	Adopt bool // of Submit
	Ended bool // of Leave
	// Wanted is the pod as its source has it, if it was admitted with other resources: of Write and
	// Infeasible.
	Wanted *v1.Pod
	Orphan bool // of Remove
	// Grace is that of Terminate when the node ends the pod; zero: the pod's own.
	Grace   time.Duration
	Status  StatusKind // of Write
	Why     Why        // of Write, Tell, and Terminate
	Warning bool       // of Tell
}
