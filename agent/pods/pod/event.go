package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/podspec"
)

// EventKind is a kind of Event.
type EventKind string

// The events. From Admitted on they are answers to effects.
const (
	// Desired: a source wants Pod to run; also when its spec changed. Runtime is what the runtime
	// has of it.
	Desired EventKind = "Desired"
	// Deleted: the API server wants Pod, which has a deletion timestamp, ended; its status is kept
	// until Removed.
	Deleted EventKind = "Deleted"
	// Retried: the source sends Pod again unchanged: a refusal is to be reconsidered.
	Retried EventKind = "Retried"
	// Removed: the source no longer has Pod.
	Removed EventKind = "Removed"
	// Reconciled: others wrote News into the status of Pod at the API server.
	Reconciled EventKind = "Reconciled"
	// Orphaned: something of Pod was found on the node. It has no effect for a pod with a record,
	// nor before every source was heard.
	Orphaned EventKind = "Orphaned"
	// Killed: the node ends the pod for Why, within Grace.
	Killed EventKind = "Killed"
	// Ending: the pod has ended by itself, and others are about to hear of it. Something of it may
	// still run.
	Ending EventKind = "Ending"
	// Observed: the runtime has Runtime of the pod.
	Observed EventKind = "Observed"

	// Admitted: the pod has its place; Why says what it lacks, if anything.
	Admitted EventKind = "Admitted"
	// Waits: the pod has no place yet.
	Waits EventKind = "Waits"
	// Refused: the pod failed admission.
	Refused EventKind = "Refused"
	// Resized: the pod was allocated the resources of Pod, which its containers and cgroups are given now.
	Resized EventKind = "Resized"
	// NotResized: the pod does not get the resources that it asks for since it was admitted, for Why.
	NotResized EventKind = "NotResized"
	// Settled: what runs of the pod has the resources that it was allocated, or Why keeps it from them.
	Settled EventKind = "Settled"
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
	// Pod is set in the events of sources and in Orphaned, and in Admitted and Resized to the pod as it
	// was decided on: its source may have changed it by then.
	Pod *v1.Pod
	// FromAPI is set if the pod's source is the API server.
	FromAPI bool
	// Runtime is set in the events of sources and in Observed.
	Runtime Runtime
	// News is set in Reconciled.
	News News
	// Heard is set in Orphaned if every source was heard.
	Heard bool
	// Why is set in Admitted, Waits, Refused, NotResized, Settled and Killed, and in Desired if an earlier
	// run of the agent was about to end the pod.
	Why Why
	// Trigger is set in Resized: what had the resize decided on.
	Trigger string
	// Grace is set with the Why of Killed and Desired: how long the containers have to exit.
	Grace time.Duration
}

// ends reports whether the pod's source wants it ended.
func (e Event) ends() bool { return e.Kind == Deleted || e.Pod.DeletionTimestamp != nil }

// Runtime says what the runtime has of a pod.
type Runtime struct {
	// Pod is the UID, namespace and name there; nil: not asked, or nothing is recorded.
	Pod *v1.Pod
	// Recorded: there is a sandbox or a container, dead or alive.
	Recorded bool
	// Running: a sandbox is ready.
	Running bool
	// Ended: by its records, or by what the API server says, the pod has ended and must not run
	// again.
	Ended bool
	// Allocated holds the resources that an earlier run of the agent allocated it; nil: unknown.
	Allocated *podspec.Resources
}

// News is a change that others made to a pod's status and that the agent acts on.
type News string

// The kinds of News.
const (
	// NoNews: nothing follows.
	NoNews News = ""
	// GateNews: a condition that a readiness gate of the pod waits for.
	GateNews News = "Gates"
	// EndNews: the pod's end, which is not known here.
	EndNews News = "Ended"
)

// Why is a reason in CamelCase and a message for people.
type Why struct {
	Reason, Message string
	// OwnLimit: the node ends the pod because it exceeded a limit of its own, which is no disruption.
	OwnLimit bool
	// Explained is the gist of an explanation, only for the event; of a resize that lacks room, the reason with
	// which a pod would be rejected.
	Explained string
	// Silent: only the words differ from the last report.
	Silent bool
}

// EffectKind is a kind of Effect.
type EffectKind string

// The effects.
const (
	// Submit asks admission for Pod; Adopt says that it runs already.
	Submit EffectKind = "Submit"
	// Leave tells admission that the pod has begun to end, or with Ended that it has ended by
	// itself.
	Leave EffectKind = "Leave"
	// Release asks admission to release what the pod holds.
	Release EffectKind = "Release"
	// Run has the worker start Pod, or follow its changed spec.
	Run EffectKind = "Run"
	// Terminate has the worker end Pod; Why and Grace are set if the node ends it.
	Terminate EffectKind = "Terminate"
	// Remove is Terminate, and removes what is left of Pod, which may be an Orphan.
	Remove EffectKind = "Remove"
	// Hasten tells the worker that removes Pod its grace period, which may be shorter now; Why and
	// Grace are set if the node ends it. A worker that has returned has nothing to hasten.
	Hasten EffectKind = "Hasten"
	// Wake has the worker look at the pod.
	Wake EffectKind = "Wake"
	// Write records a status of kind Status, for Why.
	Write EffectKind = "Write"
	// Forget drops the status of the pod.
	Forget EffectKind = "Forget"
	// AskResize asks admission for the resources of the pod as its source has it.
	AskResize EffectKind = "AskResize"
	// ApplyResize has the pod's containers and cgroups given what it was allocated; Settled answers.
	ApplyResize EffectKind = "ApplyResize"
	// TellResize records a Kubernetes event about a resize, a warning or a normal one, with Why.
	TellResize EffectKind = "TellResize"
	// Tell records a Kubernetes event, a warning or a normal one, with Why.
	Tell EffectKind = "Tell"
	// Restarted reports that the pod begins again, desired again before it was gone.
	Restarted EffectKind = "Restarted"
)

// StatusKind is the part of a status that does not come from the runtime.
type StatusKind string

// The kinds of status.
const (
	// StatusKept: only the spec changed.
	StatusKept StatusKind = "Kept"
	// StatusPending: all that is known is that the pod is desired.
	StatusPending StatusKind = "Pending"
	// StatusWaiting, StatusAdmitted and StatusRejected are outcomes of admission.
	StatusWaiting  StatusKind = "Waiting"
	StatusAdmitted StatusKind = "Admitted"
	StatusRejected StatusKind = "Rejected"
	// StatusCleared: only Facts.Cleared changed.
	StatusCleared StatusKind = "Cleared"
)

// Effect is something to do for a pod.
type Effect struct {
	Kind EffectKind
	Facts
	Adopt  bool // of Submit
	Ended  bool // of Leave
	Orphan bool // of Remove and Hasten
	// Grace is set in Terminate and Hasten if the node ends the pod; zero: the pod's own.
	Grace   time.Duration
	Status  StatusKind // of Write
	Why     Why        // of Write, Tell, TellResize, Terminate and Hasten
	Warning bool       // of Tell and TellResize
}
