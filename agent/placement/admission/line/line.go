package line

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/topology"
)

// Line is all that decisions depend on: the pods, the node, and what has happened since the pods that wait were
// looked at. Step alone changes it. Others read the fields.
type Line struct {
	Settings
	Facts
	Pods
	View decide.View

	repeats record.Repeats
	slow    sets.Set[string] // resources whose plugins take long to say what they prefer
	changes changes
	effects []Effect // of the step in progress
}

// Settings stay as they are.
type Settings struct {
	Rules    topology.Rules
	Handlers []decide.Handler // in order
	// ResizeRule says which resizes the node does not do; nil: it does all.
	ResizeRule decide.ResizeRule
	// ResizePreempts: pods make way for the resize of a critical one.
	ResizePreempts bool
	BootID         string        // the kernel's boot id now
	Wait           time.Duration // how long a pod may wait; 0: it is rejected instead
	// Rereads: what is stale can be read again. Inquires: objects of the API server can be followed.
	Rereads, Inquires bool
	// AllocateDeadline and PreferredDeadline are what plugins have to answer; 0: not known.
	AllocateDeadline, PreferredDeadline time.Duration
	Clock                               func() time.Time
}

// Facts know of the API server's objects. Their functions do not block.
type Facts struct {
	// ClaimsOf returns the resource claims of a pod for which FollowClaims was wanted.
	ClaimsOf func(*v1.Pod) allocation.PodClaims
	// Lack returns what a pod lacks for which FollowNeeds was wanted.
	Lack func(*v1.Pod) decide.Lack
}

// New returns a line without pods.
func New(s Settings, f Facts) *Line {
	return &Line{
		Settings: s, Facts: f, slow: sets.Set[string]{},
		Pods: Pods{byUID: map[types.UID]*Entry{}, bootID: s.BootID},
	}
}

// Snapshot returns what a decision beside this ledger depends on.
func (s *Settings) Snapshot(v decide.View, l allocation.Ledger) decide.Snapshot {
	return decide.Snapshot{
		View: v, Rules: s.Rules, Handlers: s.Handlers, ResizeRule: s.ResizeRule,
		ResizePreempts: s.ResizePreempts, Ledger: l,
		Ahead: l.Requests(allocation.Claimed), Patient: s.Wait > 0, Endless: s.Wait <= 0,
	}
}

// Request returns what the pod asks for.
func (l *Line) Request(e *Entry) decide.Request {
	r := decide.Request{
		Demand: e.Demand, In: e.Pod.UID, Own: l.own(e), Runs: e.Runs, ResourceClaims: l.ClaimsOf(e.Pod),
		Advice: e.Preferences.Advice, Silent: e.Preferences.Silent, HasPreempted: e.Tries.HasPreempted,
	}
	if e.Claims() {
		r.Claimed, r.Claim = true, e.Has.Pod
	}
	return r
}
