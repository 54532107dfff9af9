package failure

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/internal/await"
)

// maxActs bounds the acts. While there are as many, nothing more is done.
const maxActs = 4096

// fullPause is the time to the next try then.
const fullPause = time.Minute

// Step returns the state after a look at the devices, and what follows, in order. Planned comes before
// Acted.
func (s State) Step(in Input, rules Rules) (State, []Effect) {
	n := &step{in: in, rules: rules, was: s, done: map[doneFor]bool{}, failed: sets.Set[types.UID]{}}
	n.next = State{suspects: map[Device]suspect{}}
	n.keepActs()
	for i := range in.Pods {
		n.suspect(&in.Pods[i])
	}
	for _, c := range n.due() {
		n.act(c)
	}
	for d, one := range n.next.suspects {
		if rule := rules.Of(d); rule.Action != None {
			n.wakeAt(one.since.Add(rule.HoldOff))
		}
	}
	return n.next, n.effects
}

// step is a state on its way to the next one.
type step struct {
	in      Input
	rules   Rules
	was     State
	next    State
	effects []Effect
	done    map[doneFor]bool // by the next state's acts
	failed  sets.Set[types.UID]
}

// doneFor is an action that was done for a device.
type doneFor struct {
	Device
	Action
}

// wakeAt has the next step come at a time that is still to come.
func (n *step) wakeAt(t time.Time) {
	if t.After(n.in.Now) {
		n.next.Wake = await.Earlier(n.next.Wake, t)
	}
}

// keepActs drops devices that are healthy or not held any more, and acts that nothing depends on.
func (n *step) keepActs() {
	pods := map[types.UID]*Pod{}
	health := map[Device]v1.ResourceHealthStatus{}
	for i := range n.in.Pods {
		pods[n.in.Pods[i].UID] = &n.in.Pods[i]
		for _, d := range n.in.Pods[i].Devices {
			health[d.Device] = d.Health
		}
	}
	for _, a := range n.was.Acts {
		pod, known := pods[a.Pod], n.in.Known(a.Pod)
		if pod != nil {
			a.Devices = slices.DeleteFunc(slices.Clone(a.Devices), func(d Device) bool {
				now, held := health[d]
				return !held || now == v1.ResourceHealthStatusHealthy
			})
		}
		stops := pod != nil && a.ContainerID != "" && pod.Containers[a.Container].ID == a.ContainerID
		recent := a.disrupts() && a.Workload != "" && a.At.Add(n.rules.Pause).After(n.in.Now)
		if recent || known && (len(a.Devices) > 0 || stops || a.Action == FailPod) {
			n.remember(a)
		}
	}
}

func (n *step) remember(a Act) {
	n.next.Acts = append(n.next.Acts, a)
	for _, d := range a.Devices {
		n.done[doneFor{d, a.Action}] = true
	}
	if a.Action == FailPod {
		n.failed.Insert(a.Pod)
	}
}

// suspect compares a pod's devices with the suspicions, and plans or averts what follows.
func (n *step) suspect(pod *Pod) {
	plans, averts := map[alike]*Effect{}, map[alike]*Effect{}
	for _, d := range pod.Devices {
		rule := n.rules.Of(d.Device)
		was, suspected := n.was.suspects[d.Device]
		of := alike{d.Container, rule, d.Health}
		switch {
		case d.Exempt || pod.Leaving || n.failed.Has(pod.UID) || n.done[doneFor{d.Device, rule.Action}]:
		case d.Health != v1.ResourceHealthStatusUnhealthy:
			if suspected && rule.Action.disrupts() {
				group(averts, of, Effect{Kind: Averted, Pod: pod.UID, Health: d.Health}, d.Device)
			}
		case suspected:
			n.next.suspects[d.Device] = was
		default:
			n.next.suspects[d.Device] = suspect{since: n.in.Now}
			if rule.Action.disrupts() {
				group(plans, of, Effect{Kind: Planned, Pod: pod.UID, Due: n.in.Now.Add(rule.HoldOff)},
					d.Device)
			}
		}
	}
	n.effects = append(append(n.effects, ordered(averts)...), ordered(plans)...)
}

// alike identifies the devices of a container that share an effect.
type alike struct {
	container string
	rule      Rule
	health    v1.ResourceHealthStatus
}

func group(all map[alike]*Effect, of alike, one Effect, d Device) {
	e := all[of]
	if e == nil {
		one.Container, one.Rule = of.container, of.rule
		e = &one
		all[of] = e
	}
	e.Devices = append(e.Devices, d)
}

func ordered(all map[alike]*Effect) (out []Effect) {
	for e := range maps.Values(all) {
		slices.SortFunc(e.Devices, Device.compare)
		out = append(out, *e)
	}
	slices.SortFunc(out, func(a, b Effect) int { return a.Devices[0].compare(b.Devices[0]) })
	return out
}

// candidate is an action that is due.
type candidate struct {
	pod     *Pod
	rule    Rule
	first   time.Time // since when the first of the devices is unhealthy
	due     time.Time
	devices []Device // unhealthy ones that it is done for
}

// rank is its place in the order of kinds.
func (c candidate) rank() int {
	if c.rule.Action == FailPod {
		return 0
	}
	return 1
}

// due returns what is due: first pods that fail, then the longest due.
func (n *step) due() (out []candidate) {
	for i := range n.in.Pods {
		out = append(out, n.dueOf(&n.in.Pods[i])...)
	}
	slices.SortFunc(out, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), a.due.Compare(b.due),
			a.devices[0].compare(b.devices[0]), cmp.Compare(a.rule.Action, b.rule.Action))
	})
	return out
}

// dueOf returns what is due for a pod: that it fails, and an action of each kind for each container. A
// disruption is also done for the devices with the same action whose hold-off is not over.
func (n *step) dueOf(pod *Pod) (out []candidate) {
	all := map[alike]*candidate{} // without the hold-off; the container is "" for FailPod
	for _, d := range pod.Devices {
		rule := n.rules.Of(d.Device)
		one, suspected := n.next.suspects[d.Device]
		due := one.since.Add(rule.HoldOff)
		if !suspected || rule.Action == None || rule.Action == Event && due.After(n.in.Now) {
			continue
		}
		of := alike{container: d.Container, rule: Rule{Action: rule.Action}}
		if rule.Action == FailPod {
			of.container = ""
		}
		if all[of] == nil {
			all[of] = &candidate{pod: pod, rule: rule, first: one.since, due: due}
		}
		c := all[of]
		c.devices = append(c.devices, d.Device)
		c.first, c.due = await.Earlier(c.first, one.since), await.Earlier(c.due, due)
	}
	for c := range maps.Values(all) {
		slices.SortFunc(c.devices, Device.compare)
		if !c.due.After(n.in.Now) {
			out = append(out, *c)
		}
	}
	return out
}

// act does what is due, unless another pod of the workload was acted on a moment ago.
func (n *step) act(c candidate) {
	if n.failed.Has(c.pod.UID) {
		return
	}
	one := Act{Pod: c.pod.UID, Workload: c.pod.Workload, Action: c.rule.Action,
		Container: c.devices[0].Container, Devices: c.devices, Since: c.first, At: n.in.Now}
	switch c.rule.Action {
	case FailPod:
		one.Container = ""
	case RestartContainer:
		if now := c.pod.Containers[one.Container]; now.ID != "" && !now.Started.After(c.first) {
			one.ContainerID = now.ID
		}
	case Event, None:
	}
	e := Effect{Kind: Acted, Pod: one.Pod, Container: one.Container, Rule: c.rule, Devices: c.devices,
		Due: n.in.Now, Act: one}
	if len(n.next.Acts) >= maxActs {
		n.wakeAt(n.in.Now.Add(fullPause))
		return
	}
	if until, other := n.taken(one); until.After(n.in.Now) {
		n.wakeAt(until)
		n.postpone(e, until, other)
		return
	}
	n.remember(one)
	for _, d := range c.devices {
		delete(n.next.suspects, d)
	}
	if one.Action == FailPod {
		maps.DeleteFunc(n.next.suspects, func(d Device, _ suspect) bool { return d.Pod == one.Pod })
	}
	n.effects = append(n.effects, e)
}

// taken returns until when another pod of the workload comes first; zero: none does. A time in the
// future, from before the clock was set back, counts as now.
func (n *step) taken(one Act) (until time.Time, other types.UID) {
	if one.Workload == "" || !one.disrupts() {
		return until, ""
	}
	for _, a := range n.next.Acts {
		at := a.At
		if at.After(n.in.Now) {
			at = n.in.Now
		}
		if end := at.Add(n.rules.Pause); a.Workload == one.Workload && a.Pod != one.Pod &&
			a.disrupts() && end.After(until) {
			until, other = end, a.Pod
		}
	}
	return until, other
}

// postpone tells once that what is due comes later.
func (n *step) postpone(e Effect, until time.Time, other types.UID) {
	isNew := false
	for _, d := range e.Devices {
		one := n.next.suspects[d]
		isNew = isNew || one.until.IsZero()
		one.until = until
		n.next.suspects[d] = one
	}
	if isNew {
		e.Kind, e.Due, e.Other, e.Act = Postponed, until, other, Act{}
		n.effects = append(n.effects, e)
	}
}
