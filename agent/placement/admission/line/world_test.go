package line

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/topologytest"
)

// A world is a line with all around it, in memory: a store that records at once, a clock, calls that return
// when they are told to. Its machine has two NUMA nodes of five CPUs each, of which CPU 0 is reserved.
type world struct {
	*Line
	t     testing.TB
	now   time.Time
	state allocation.State
	// calls has what each pod's last call is for, until it returns.
	calls map[types.UID]any
	lacks map[types.UID]decide.Lack
	said  []string // what was done since it was taken last
	stops bool     // the agent stops
}

const gpu = "example.com/gpu"

func newWorld(t testing.TB, wait time.Duration) *world {
	node := func(c *topology.CPU) { c.Node = topology.NodeID(c.ID / 5) }
	m := topologytest.Machine(t, []topology.Node{{ID: 0, MemoryBytes: 64 << 30}, {ID: 1, MemoryBytes: 64 << 30}}, 10, node)
	static, err := cpumanager.NewStatic(m, cpuset.New(0), cpumanager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), calls: map[types.UID]any{},
		lacks: map[types.UID]decide.Lack{},
	}
	w.starts(wait, decide.View{Hardware: machine.Hardware{
		Machine: m, CPUs: static, Allocatable: nodestatus.Allocatable(m, nodestatus.Reservation{
			MaxPods: 100, Reserved: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")},
		}),
	}})
	return w
}

// starts has the agent start on what is recorded.
func (w *world) starts(wait time.Duration, view decide.View) {
	w.Line = New(Settings{
		Rules:  topology.Rules{Policy: topology.BestEffort, Scope: topology.ContainerScope},
		BootID: "boot", Wait: wait, Inquires: true, Clock: func() time.Time { return w.now },
	}, Facts{
		ClaimsOf: func(*v1.Pod) allocation.PodClaims { return allocation.PodClaims{} },
		Lack:     func(p *v1.Pod) decide.Lack { return w.lacks[p.UID] },
	})
	clear(w.calls)
	w.step(Recorded{w.state})
	w.step(Seen{view})
}

// has gives the node that many devices of a resource, every other one on node 1, whose plugin prefers some if
// preferred. none: the plugin is away.
func (w *world) has(name string, count int, preferred bool) {
	v := w.View
	r := devicemanager.Resource{
		Name: name, Connected: count > 0, Generation: v.Inventory.Version + 1,
		Options: devicemanager.Options{Preferred: preferred},
	}
	for i := range count {
		r.Devices = append(r.Devices, &devicemanager.Device{
			ID: fmt.Sprint("d", i), Healthy: true, Nodes: topology.NewNodeSet(topology.NodeID(i % 2)),
		})
	}
	all := maps.Clone(v.Inventory.Resources)
	if all == nil {
		all = map[string]devicemanager.Resource{}
	}
	all[name] = r
	v.Inventory = devicemanager.Inventory{Version: v.Inventory.Version + 1, Resources: all}
	w.step(Seen{v})
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

func (w *world) do(e Effect) {
	name := e.Pod.Name
	if name == "" {
		name = string(e.Pod.UID)
	}
	switch f := e.Do.(type) {
	case Explain, FollowNeeds, record.Forgo:
	case FollowClaims:
		w.tell("follow the claims of %s", name)
	case record.Ask:
		w.calls[e.Pod.UID] = f
		w.tell("ask for %d of %s for %s", f.Size, strings.Join(f.Available, " "), name)
	case record.Inquire, record.Reread, record.Assign, record.DropRecord:
		w.calls[e.Pod.UID] = f
		verb, _, _ := strings.Cut(strings.TrimPrefix(fmt.Sprintf("%T", f), "record."), "{")
		w.tell("%s %s", strings.ToLower(verb), name)
	case record.Cancel:
		w.tell("cancel %s", name)
	case record.Say:
		w.tell("%s: %s", name, strings.Join(strings.Fields(string(f.Outcome)+" "+f.Reason), " "))
	case record.SayReject:
		w.tell("%s: Reject %s", name, f.Reason)
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

// submit has a pod come, with one container of these amounts. options are "runs", "critical",
// "static" and "claims".
func (w *world) submit(name, amounts string) {
	var words []string
	runs := false
	options := []podtest.Option{podtest.UID(name)}
	for word := range strings.FieldsSeq(amounts) {
		switch word {
		case "runs":
			runs = true
		case "critical":
			options = append(options, podtest.Priority(2_000_000_000))
		case "static":
			options = append(options, podtest.Source("file"))
		case "claims":
			options = append(options, podtest.Line("Always other"), podtest.Claims("gpu=gpu-1"))
		default:
			words = append(words, word)
		}
	}
	container := podtest.Guaranteed("main " + strings.Join(words, " "))
	if !slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, "cpu=") }) {
		container = podtest.Containers("main " + strings.Join(words, " "))
	}
	w.step(Submitted{Pod: podtest.New(name, append(options, container)...), Adopt: runs})
}

// back has the pod's call return: with the ids that a plugin prefers, or with err.
func (w *world) back(uid types.UID, ids []string, err error) {
	call := w.calls[uid]
	delete(w.calls, uid)
	commit := func(c allocation.Change) {
		w.state = w.state.With([]allocation.Change{c})
		w.step(Recorded{w.state})
	}
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
		p.Containers = maps.Clone(p.Containers)
		for name, c := range p.Containers {
			p.Containers[name] = c.With(c.Devices().With(func(d *allocation.DeviceSet) { d.Answer = []byte{} }))
		}
		commit(allocation.Change{Put: p})
		e = record.Allocated{Pod: w.state.Pods[uid]}
	case record.DropRecord:
		if err == nil {
			commit(allocation.Change{Drop: uid})
		}
		e = record.Dropped{Err: err}
	default:
		w.t.Errorf("no call is under way for %s", uid)
		w.tell("NO CALL of %s", uid)
		return
	}
	w.step(Answered{UID: uid, Event: e, Stopping: w.stops})
}

// Errors of calls, by name.
var failures = map[string]error{
	"away": &record.CallError{Resource: gpu, Err: &devicemanager.StoppedError{}},
	"no":   &record.CallError{Resource: gpu, Err: errors.New("no")},
	"disk": fmt.Errorf("%w: disk full", record.ErrCommit),
	"late": context.DeadlineExceeded,
}

// shown writes the pods in the order of arrival, each with its state and what it has.
func (w *world) shown() (lines []string) {
	for _, e := range w.Order {
		line := e.Pod.Name + " " + e.State.String()
		if e.State == record.Behind {
			line += " " + string(e.After)
		}
		if e.Counts() || e.IsReserved() {
			line += ", " + []string{"has", "place", "claims"}[e.Has.Kind]
			held := allocation.HoldingsOf(e.Has.Pod)
			if !held.CPUs().IsEmpty() {
				line += " cpus " + held.CPUs().String()
			}
			for _, name := range slices.Sorted(maps.Keys(held.Devices())) {
				ids := held.Devices()[name].UnsortedList()
				slices.SortFunc(ids, devicemanager.CompareIDs)
				line += " " + strings.TrimPrefix(name, "example.com/") + " " + strings.Join(ids, ",")
			}
		}
		lines = append(lines, line)
	}
	return lines
}
