package podworker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/status"
	"github.com/numalet/numalet/cri"
)

// Desired is what is wanted of a pod. Pod is never nil; of a pod that only the runtime knows it
// has what the labels say.
type Desired struct {
	Pod *v1.Pod
	// Stop ends the pod; nil: it shall run.
	Stop *Stop
}

// Stop says how a pod ends: its containers and sandboxes are stopped and what was made around them
// is cleaned up.
type Stop struct {
	// Remove also removes what the runtime has of the pod, and with it what its last status is made
	// from. It may follow a Stop without it.
	Remove bool
	// Grace is the time from now that the containers have to exit, at least a second. Of several
	// graces the one that ends first counts.
	Grace time.Duration
	// Reason and Message are for the pod's status when the node ends the pod (Evicted).
	Reason, Message string
	// Orphan: nobody desires the pod, the runtime has it. It gets one second.
	Orphan bool
}

// Grace is how long the pod's containers have to exit as the pod itself says it.
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

// maxGrace is what is given to pods that ask for more, as those that are never to be killed do: the
// API takes any number of seconds, and times are reckoned with it.
const maxGrace = 10 * 365 * 24 * time.Hour

func graceOf(seconds int64) time.Duration {
	return time.Duration(min(seconds, int64(maxGrace/time.Second))) * time.Second
}

// ActionKind is a kind of Action.
type ActionKind string

// The actions. An actuator treats as done what is done already: a container to be stopped that has
// exited, a sandbox to be removed that is gone.
const (
	// None is no action: nothing was done since the pod was observed.
	None ActionKind = ""
	// CreateSandbox makes everything that comes before the first container: directories,
	// cgroup, volumes, sandbox. Attempt is the sandbox's.
	CreateSandbox ActionKind = "CreateSandbox"
	// StartContainer creates and starts Container as Attempt in the newest sandbox.
	StartContainer ActionKind = "StartContainer"
	// PostStart runs the postStart hook of Container, whose id is in IDs, to its end.
	PostStart ActionKind = "PostStart"
	// UpdateVolumes brings the files in volumes up to date that the agent writes. It is done again
	// when they are due again.
	UpdateVolumes ActionKind = "UpdateVolumes"
	// StopContainers stops the containers IDs within Grace and waits for their ends. First, all at
	// once and within Grace, it runs the preStop hooks of those in Hooks. Those in one of Turns are
	// stopped when those of the turn before have ended, or when Grace is over; all others at once.
	StopContainers ActionKind = "StopContainers"
	// StopSandboxes stops the sandboxes IDs.
	StopSandboxes ActionKind = "StopSandboxes"
	// RemoveContainers removes the records of the containers IDs, none of which runs, and their logs
	// unless KeepLogs.
	RemoveContainers ActionKind = "RemoveContainers"
	// RemoveSandboxes removes the records of the sandboxes IDs, none of which is ready or has a
	// record of a container.
	RemoveSandboxes ActionKind = "RemoveSandboxes"
	// CleanUp takes back what CreateSandbox made around the sandbox: volumes, cgroup.
	CleanUp ActionKind = "CleanUp"
	// RemovePod removes all that the runtime has of the pod, sandboxes and containers.
	RemovePod ActionKind = "RemovePod"
)

// Again says whether a container that the worker stops is started again, whatever its exit and its
// restart policy say.
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
	// Container is a name: of the container that is started, or stopped for what it is.
	Container string
	// Again says what becomes of a container that is stopped.
	Again   Again
	Attempt uint32
	IDs     []string
	Hooks   []string
	Turns   [][]string
	// KeepLogs is of RemoveContainers.
	KeepLogs bool
	// Grace is in whole seconds.
	Grace time.Duration
	// Message says why, where it is not plain from the kind.
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
	for i, ids := range a.Turns {
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

// Aside are those of IDs that are in none of Turns.
func (a Action) Aside() []string {
	return slices.DeleteFunc(slices.Clone(a.IDs), func(id string) bool {
		return slices.ContainsFunc(a.Turns, func(turn []string) bool {
			return slices.Contains(turn, id)
		})
	})
}

// key is what a failure of the action is remembered by.
func (a Action) key() key { return key{a.Kind, a.Container} }

// same reports whether two actions want the same effect.
func (a Action) same(b Action) bool {
	return a.Kind == b.Kind && a.Container == b.Container && a.Attempt == b.Attempt &&
		a.KeepLogs == b.KeepLogs && slices.Equal(a.IDs, b.IDs) &&
		slices.EqualFunc(a.Turns, b.Turns, slices.Equal)
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
// It is derived from facts in every step and stored nowhere. A pod that is Finished with Remove is
// gone: its worker ends.
type State string

// The states.
const (
	SyncPod        State = "SyncPod"
	TerminatingPod State = "TerminatingPod"
	TerminatedPod  State = "TerminatedPod"
	Finished       State = "Finished"
)

// Decision is what step makes of a pod.
type Decision struct {
	State State
	// Action is what to do now; nil: nothing.
	Action *Action
	// Wake is when to look again although nothing happened; zero: no need.
	Wake time.Time
	// Waiting has, by container, why it does not run although it should. Containers in it will
	// be started, or started again.
	Waiting map[string]status.Reason
	// Problem is why the pod as a whole does not get on; empty: it does.
	Problem status.Reason
	// Deadline is the end of the grace period under way; zero: none is.
	Deadline time.Time
}

// Report is what a worker saw and decided in one round.
type Report struct {
	Pod      *v1.Pod
	Stop     *Stop
	Observed cri.Pod
	Decision Decision
	// Probed is what was known of the probes of its containers, by id.
	Probed map[string]status.Probed
	// Err is why the pod could not be observed; Observed and Decision are then empty.
	Err error
	// Begun is when the round began.
	Begun time.Time
}

// Ended reports whether nothing of the pod runs any more and its worker keeps it so. The end of a pod
// that is to be removed is told by Gone.
func (r Report) Ended() bool {
	return r.Err == nil && r.Decision.State == Finished && (r.Stop == nil || !r.Stop.Remove)
}

// Actuator does to pods what workers decide. It is called by one goroutine per pod.
type Actuator interface {
	// Observe reads the pod from the runtime, now.
	Observe(ctx context.Context, uid types.UID) (cri.Pod, error)
	// Recall is what is known of a pod after the action done, which took effect, and with nobody
	// else acting on the pod since it was observed; false: it has to be observed. Of a pod that is
	// not to end it is asked for after None, and after what made something.
	Recall(ctx context.Context, uid types.UID, done Done) (cri.Pod, bool)
	// Do returns when the action has taken effect, with what it made. Its context ends when the pod
	// is to stop, or to stop sooner, or when the agent stops. A *cri.StartError says what the status
	// shall say. Do calls yield when what it does from then on takes nothing of the runtime's that
	// other pods need to start, such as waiting for an image: another pod may start meanwhile.
	Do(ctx context.Context, pod *v1.Pod, observed cri.Pod, a Action, yield func()) (cri.Made, error)
}

// Done is an action that took effect, with what it made.
type Done struct {
	Action
	Made cri.Made
}
