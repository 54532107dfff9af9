package line

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/handlers"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/resize"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/topology"
)

// A world is a line with all around it, in memory: a store that records at once, a clock, calls that return
// when they are told to.
type world struct {
	*Line
	t     testing.TB
	now   time.Time
	boot  int // counts reboots
	state allocation.State
	// calls has what each pod's last call is for, until it returns.
	calls     map[types.UID]any
	lacks     map[types.UID]decide.Lack
	podClaims map[types.UID]allocation.PodClaims
	// follows names the pods whose needs are followed.
	follows  sets.Set[types.UID]
	pressure bool     // a handler has pods wait
	said     []string // what was done since it was taken last
	// words: messages are said in full. decisions: it is said who is decided on.
	words, decisions bool
	stops            bool             // the agent stops
	off              sets.Set[string] // feature gates; all others are on
	// sized is told what was decided on resizes; of a granted one with the pod's UID.
	sized func(what string, granted types.UID)
}

const (
	gpu = "example.com/gpu"
	// schedulerPreempts is the gate without which pods make way for the resize of a critical one.
	schedulerPreempts = "InPlacePodVerticalScalingSchedulerPreemption"
)

func newWorld(t testing.TB, wait time.Duration) *world {
	w := &world{
		t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), calls: map[types.UID]any{},
		lacks: map[types.UID]decide.Lack{}, podClaims: map[types.UID]allocation.PodClaims{}, follows: sets.Set[types.UID]{},
		sized: func(string, types.UID) {}, off: sets.Set[string]{},
	}
	w.starts(wait, decide.View{Hardware: hardware(t, nil)})
	return w
}

// starts has the agent start on what is recorded.
func (w *world) starts(wait time.Duration, view decide.View) {
	w.Line = New(Settings{
		Rules: topology.Rules{
			Policy: topology.BestEffort, Scope: topology.ContainerScope, Choosers: topology.Choosers{{Scheduler: chooser}},
		},
		Handlers: []decide.Handler{handlers.Ports, handlers.Placement, w.underPressure},
		ResizeRule: resize.Rules{
			StaticCPUs: true, Enabled: func(gate string) bool { return !w.off.Has(gate) },
			Swaps: func(*v1.Pod, *v1.Container) bool { return false },
		}.Check,
		ResizePreempts: w.off.Has(schedulerPreempts),
		BootID:         fmt.Sprint("boot-", w.boot), Wait: wait, Inquires: true, Clock: func() time.Time { return w.now },
	}, Facts{
		ClaimsOf: func(p *v1.Pod) allocation.PodClaims { return w.podClaims[p.UID] },
		Lack:     func(p *v1.Pod) decide.Lack { return w.lacks[p.UID] },
	})
	clear(w.calls)
	clear(w.follows)
	w.step(Recorded{w.state})
	w.step(Seen{view})
}

func (w *world) underPressure(decide.Attempt) *decide.Refusal {
	if !w.pressure {
		return nil
	}
	return &decide.Refusal{Reason: "NodeHadCondition", Wait: true}
}

// step has the line take a step, and does what it wants done.
func (w *world) step(e Event) {
	for _, f := range w.Step(e) {
		w.do(f)
	}
}

func (w *world) tell(format string, args ...any) {
	w.said = append(w.said, fmt.Sprintf(format, args...))
}

func (w *world) say(name string, o decide.Outcome, reason, message string) {
	words := []string{name + ":", string(o)}
	if reason != "" {
		words = append(words, reason)
	}
	if w.words && message != "" {
		words = append(words, "("+message+")")
	}
	w.tell("%s", strings.Join(words, " "))
}

func (w *world) do(e Effect) {
	name := e.Pod.Name
	if name == "" {
		name = string(e.Pod.UID)
	}
	switch f := e.Do.(type) {
	case Explain:
		if w.decisions && !f.Final {
			w.tell("decide on %s", name)
		}
	case FollowNeeds:
		w.follows.Insert(e.Pod.UID)
	case Ignored:
	case record.Forgo:
		w.follows.Delete(e.Pod.UID)
	case FollowClaims:
		w.tell("follow the claims of %s", name)
	case record.Ask:
		w.calls[e.Pod.UID] = f
		w.tell("ask for %d of %s for %s", f.Size, strings.Join(f.Available, " "), name)
	case record.Assign:
		w.calls[e.Pod.UID] = f
		if f.Pod.Incomplete(e.Pod) || len(allocation.HoldingsOf(f.Pod).Devices()) == 0 {
			w.tell("assign %s", name)
		} else {
			w.tell("assign %s, with the answers that it has", name)
		}
	case record.Inquire, record.Reread, record.DropRecord:
		w.calls[e.Pod.UID] = f
		verb, _, _ := strings.Cut(strings.TrimPrefix(fmt.Sprintf("%T", f), "record."), "{")
		w.tell("%s %s", strings.ToLower(verb), name)
	case record.RecordResources:
		w.calls[e.Pod.UID] = f
		w.sized("resize granted", e.Pod.UID)
		w.tell("record the resources of %s", name)
	case record.SayResize:
		outcome := decide.Resized
		if f.Reason != "" {
			outcome = decide.NotResized
			w.sized("resize "+strings.ToLower(f.Reason), "")
		}
		w.say(f.Pod.Name, outcome, cmp.Or(f.Reason, string(f.Trigger)), f.Message)
	case record.Cancel:
		w.tell("cancel %s", name)
	case record.Say:
		w.say(name, f.Outcome, f.Reason, f.Message)
	case record.SayReject:
		w.say(name, decide.Reject, f.Reason, f.Message)
	case record.Forget:
		w.tell("%s: Released", name)
	case Preempted:
		w.tell("%s makes way for %s", name, f.Critical.Name)
	case Unadvised:
		w.tell("%s is not asked about", name)
	default:
		w.t.Fatalf("effect %T", f)
	}
}

// back has the pod's call return: with the ids that a plugin prefers, or with err.
func (w *world) back(uid types.UID, ids []string, err error) {
	call := w.calls[uid]
	delete(w.calls, uid)
	var e record.Event
	switch f := call.(type) {
	case record.Ask:
		e = record.Advised{Key: f.AskKey, IDs: ids, Err: err}
	case record.Inquire, record.Reread:
		e = record.Looked{}
	case record.Assign:
		if err != nil {
			e = record.Failed{Pod: f.Pod, Err: err, Began: w.now}
			break
		}
		p := f.Pod
		p.Containers, p.Resources = maps.Clone(p.Containers), w.state.Pods[uid].Resources
		for name, c := range p.Containers {
			p.Containers[name] = c.With(c.Devices().With(func(d *allocation.DeviceSet) { d.Answer = []byte{} }))
		}
		w.commit(allocation.Change{Put: p, Releases: allocation.ReleasesOf(w.state.Pods[uid], p, w.mayWant)})
		e = record.Allocated{Pod: w.state.Pods[uid]}
	case record.RecordResources:
		put, known := w.state.Pods[uid]
		if !known {
			put = allocation.Pod{UID: uid, BootID: w.BootID}
		}
		e = record.Resized{Pod: put, Err: err}
		if err == nil {
			if put.Resources = &f.Resources; f.Held != nil {
				put.Containers = f.Held.Containers
			}
			w.commit(allocation.Change{Put: put})
			e = record.Resized{Pod: put}
		}
	case record.DropRecord:
		if err == nil {
			w.commit(allocation.Change{
				Drop: uid, Releases: allocation.ReleasesOf(w.state.Pods[uid], allocation.Pod{}, w.mayWant),
			})
		}
		e = record.Dropped{Err: err}
	default:
		w.t.Errorf("no call is under way for %s", uid)
		w.tell("NO CALL of %s", uid)
		return
	}
	w.step(Answered{UID: uid, Event: e, Stopping: w.stops})
}

func (w *world) commit(c allocation.Change) {
	w.state = w.state.With([]allocation.Change{c})
	w.step(Recorded{w.state})
}

// mayWant reports whether the resource's plugin wants to hear what was released.
func (w *world) mayWant(resource string) bool {
	return w.View.Inventory.WantsReleased(resource) == devicemanager.ReleasedWanted
}

// heard has the plugins hear of all releases.
func (w *world) heard() {
	for _, o := range w.state.PendingReleases {
		w.commit(allocation.Change{Released: o})
	}
}

// Errors of calls, by name.
var failures = map[string]error{
	"away": &record.CallError{Resource: gpu, Err: &devicemanager.StoppedError{}},
	"no":   &record.CallError{Resource: gpu, Err: errors.New("no")},
	"disk": fmt.Errorf("%w: disk full", record.ErrCommit),
	"late": context.DeadlineExceeded,
	// Of resource claims.
	"busy":     &record.PrepareError{Err: errors.New("busy")},
	"replaced": &record.PrepareError{Err: claim.ErrReplaced},
}
