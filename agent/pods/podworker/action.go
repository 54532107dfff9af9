package podworker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// Desired says how the agent wants a pod to be. Pod is never nil; for a pod that only the runtime
// knows, it holds what the labels say.
type Desired struct {
	Pod *v1.Pod
	// Stop ends the pod; nil: the pod should run.
	Stop *Stop
}

// Stop says how a pod ends: its containers and sandboxes are stopped, and its volumes and cgroup
// are cleaned up.
type Stop struct {
	// Remove also removes the pod's records in the runtime, from which its last status is made. It
	// may follow a Stop without Remove.
	Remove bool
	// Grace is the time from now that the containers have to exit, at least a second. If several
	// stops come, the earliest end counts.
	Grace time.Duration
	// Reason and Message go into the pod's status if the node ends the pod (Evicted).
	Reason, Message string
	// OwnLimit: the pod exceeded a limit of its own.
	OwnLimit bool
	// Orphan: no source desires the pod, and the runtime has it. Its containers get one second.
	Orphan bool
}

// Unready reports whether the pod counts as not ready from now on, whatever its probes find: the node
// ends it, or its manifest is gone, and its containers may run on for their grace period. A pod that
// the API server wants deleted is marked there.
func (d Desired) Unready() bool {
	return d.Stop != nil && !d.Stop.Orphan && (d.Stop.Reason != "" || podspec.IsStatic(d.Pod))
}

// Grace returns how long the pod's containers have to exit, by its own spec.
func Grace(pod *v1.Pod) time.Duration {
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		return graceOf(*pod.DeletionGracePeriodSeconds)
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return graceOf(*pod.Spec.TerminationGracePeriodSeconds)
	default:
		return graceOf(v1.DefaultTerminationGracePeriodSeconds)
	}
}

// maxGrace bounds the grace period: the API accepts any number of seconds, and the agent adds it to
// times.
const maxGrace = 10 * 365 * 24 * time.Hour

func graceOf(seconds int64) time.Duration {
	return time.Duration(min(seconds, int64(maxGrace/time.Second))) * time.Second
}

// ActionKind is a kind of Action.
type ActionKind string

// The actions. An action that has already taken effect succeeds: stopping a container that has
// exited, removing a sandbox that is gone.
const (
	// None: nothing was done since the pod was observed.
	None ActionKind = ""
	// CreateSandbox makes everything that precedes the first container: directories, cgroup,
	// volumes, sandbox. Attempt is the sandbox's.
	CreateSandbox ActionKind = "CreateSandbox"
	// StartContainer creates and starts Container as Attempt in the newest sandbox.
	StartContainer ActionKind = "StartContainer"
	// PostStart runs the postStart hook of Container, whose id is in IDs, to its end.
	PostStart ActionKind = "PostStart"
	// UpdateVolumes updates the files in volumes that the agent writes. It is repeated when they
	// are due again.
	UpdateVolumes ActionKind = "UpdateVolumes"
	// StopContainers stops the containers IDs within Grace and waits until they have ended. It
	// first runs the preStop hooks of those in Hooks, all at once and within Grace. A container in
	// a group of StopOrder is stopped when the previous group has ended, or when Grace is over; all others
	// are stopped at once.
	StopContainers ActionKind = "StopContainers"
	// StopSandboxes stops the sandboxes IDs.
	StopSandboxes ActionKind = "StopSandboxes"
	// RemoveContainers removes the records of the containers IDs, none of which runs, and their
	// logs unless KeepLogs is set.
	RemoveContainers ActionKind = "RemoveContainers"
	// RemoveSandboxes removes the records of the sandboxes IDs. None of them is ready or has a
	// container's record.
	RemoveSandboxes ActionKind = "RemoveSandboxes"
	// ReleaseClaims has the pod's resource claims unprepared, unless other pods use them, and waits
	// until they are.
	ReleaseClaims ActionKind = "ReleaseClaims"
	// CleanUp removes what CreateSandbox made around the sandbox: volumes, cgroup.
	CleanUp ActionKind = "CleanUp"
	// RemovePod removes all of the pod's sandboxes and containers from the runtime.
	RemovePod ActionKind = "RemovePod"
)

// Again says whether a container that the worker stops is started again, regardless of its exit and
// its restart policy.
type Again int

// The kinds of Again.
const (
	NotAgain Again = iota
	AgainAtOnce
	AgainLater // when its back-off is over
)

// Action is one thing to do for a pod.
type Action struct {
	Kind ActionKind
	// Container names the container that is started, or that is stopped for its own sake.
	Container string
	// Again applies to a container that is stopped.
	Again     Again
	Attempt   uint32
	IDs       []string
	Hooks     []string
	StopOrder [][]string
	// KeepLogs applies to RemoveContainers.
	KeepLogs bool
	// Grace is in whole seconds.
	Grace time.Duration
	// Message gives the reason if the kind does not.
	Message string
}

func (a Action) String() string {
	var b strings.Builder
	b.WriteString(string(a.Kind))
	if a.Container != "" {
		b.WriteString(" " + a.Container)
	}
	if a.Kind == CreateSandbox || a.Kind == StartContainer {
		fmt.Fprintf(&b, " #%d", a.Attempt)
	}
	if len(a.IDs) > 0 {
		b.WriteString(" " + strings.Join(a.IDs, ","))
	}
	for i, ids := range a.StopOrder {
		fmt.Fprintf(&b, " %d: %s", i+1, strings.Join(ids, ","))
	}
	if len(a.Hooks) > 0 {
		b.WriteString(" hooks " + strings.Join(a.Hooks, ","))
	}
	if a.KeepLogs {
		b.WriteString(" but logs")
	}
	if a.Grace > 0 {
		fmt.Fprintf(&b, " in %v", a.Grace)
	}
	return b.String()
}

// Aside returns the IDs that are in no group of StopOrder.
func (a Action) Aside() []string {
	return slices.DeleteFunc(slices.Clone(a.IDs), func(id string) bool {
		return slices.ContainsFunc(a.StopOrder, func(group []string) bool {
			return slices.Contains(group, id)
		})
	})
}

// key returns the key under which a failure of the action is remembered.
func (a Action) key() key { return key{a.Kind, a.Container} }

// same reports whether two actions want the same effect.
func (a Action) same(b Action) bool {
	return a.Kind == b.Kind && a.Container == b.Container && a.Attempt == b.Attempt &&
		a.KeepLogs == b.KeepLogs && slices.Equal(a.IDs, b.IDs) &&
		slices.EqualFunc(a.StopOrder, b.StopOrder, slices.Equal)
}

// State is how far a pod's life has come.
//
//	         Stop, or all containers      no container runs,     cleaned up, and if
//	         ended and none restarts      no sandbox is ready    Remove: removed
//	SyncPod ------------------> TerminatingPod ------> TerminatedPod ------> Finished
//	                                                                            |
//	                                                      Remove, records left  |
//	                                   TerminatedPod <--------------------------'
//
// It is derived in every step and never stored. A pod that is Finished with Remove is gone: its
// worker ends.
type State string

// The states.
const (
	SyncPod        State = "SyncPod"
	TerminatingPod State = "TerminatingPod"
	TerminatedPod  State = "TerminatedPod"
	Finished       State = "Finished"
)

// Decision is the result of step.
type Decision struct {
	State State
	// Action is the action to do now; nil: none.
	Action *Action
	// Wake is the time of the next look if nothing happens before; zero: never.
	Wake time.Time
	// Waiting holds, by container, why it does not run although it should. These containers will be
	// started, or started again.
	Waiting map[string]status.Reason
	// Problem says why the pod as a whole makes no progress; empty: it does.
	Problem status.Reason
	// Holds: the pod holds resource claims.
	Holds bool
	// Deadline is the end of the current grace period; zero: there is none.
	Deadline time.Time
	// Until TellBy, the containers of a pod that is Unready are only stopped once others know that;
	// zero: they do not wait.
	TellBy time.Time
}

// Report says what a worker saw and decided in one round.
type Report struct {
	Pod      *v1.Pod
	Stop     *Stop
	Observed cri.Pod
	Decision Decision
	// Probed holds the results of the containers' probes by container id.
	Probed map[string]status.Probed
	// Err says why the pod could not be observed; Observed and Decision are then empty.
	Err error
	// Begun is the start of the round.
	Begun time.Time
}

// Ended reports whether nothing of the pod runs any more and its worker keeps it so. Gone reports the
// end of a pod that is to be removed.
func (r Report) Ended() bool {
	return r.Err == nil && r.Decision.State == Finished && (r.Stop == nil || !r.Stop.Remove)
}

// Actuator carries out what workers decide. One goroutine per pod calls it.
type Actuator interface {
	// Observe reads the pod from the runtime, now.
	Observe(ctx context.Context, uid types.UID) (cri.Pod, error)
	// Recall returns the pod after the action done, which took effect, provided that nothing else
	// changed the pod since it was observed; false: it must be observed. Unless the pod ends, it is
	// only called after None and after an action that made something.
	Recall(ctx context.Context, uid types.UID, done Done) (cri.Pod, bool)
	// Do returns when the action has taken effect, with what it made. Its context ends when the pod
	// has to stop, or to stop sooner, or when the agent stops. A *cri.StartError holds the reason
	// for the status. Do calls yield once it no longer takes from the runtime what other pods need
	// to start, such as when it waits for an image: another pod may then start.
	Do(ctx context.Context, pod *v1.Pod, observed cri.Pod, a Action, yield func()) (cri.Made, error)
}

// Done is an action that took effect, with what it made.
type Done struct {
	Action
	Made cri.Made
}
