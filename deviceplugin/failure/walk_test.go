package failure

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestWalk plays 1,000,000 random steps (fewer with -short) and checks after each, with facts of its
// own, what must always hold: nothing is done before its hold-off is over, untold, for what is not
// unhealthy, or twice for one failure; no two pods of a workload are disrupted within the pause; and
// what is due is done.
func TestWalk(t *testing.T) {
	seed, steps := uint64(1), 1_000_000
	if text := os.Getenv("NUMALET_SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	if testing.Short() {
		steps = 50_000
	}
	for done := 0; done < steps; seed++ {
		w := newWalk(seed)
		for range 2000 {
			if err := w.step(); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, w.at, err)
			}
		}
		done += w.at
	}
}

type walk struct {
	r     *rand.Rand
	rules Rules
	state State
	pods  []*Pod
	now   time.Time
	at    int
	made  int
	// What the model knows of devices, and of workloads' last disrupted pods.
	since    map[Device]time.Time // unhealthy without a break since
	reported map[Device]bool
	finished map[doneFor]bool
	last     map[types.UID]Act
}

func newWalk(seed uint64) *walk {
	w := &walk{r: rand.New(rand.NewPCG(seed, 0)), now: begin, since: map[Device]time.Time{},
		reported: map[Device]bool{}, finished: map[doneFor]bool{}, last: map[types.UID]Act{}}
	w.rules.Pause = []time.Duration{0, time.Minute, 3 * time.Minute}[w.r.IntN(3)]
	for i := range 4 {
		rule := Rule{actions()[w.r.IntN(4)], time.Duration(w.r.IntN(5)*15) * time.Second}
		if w.rules.Usual = rule; i > 0 {
			if w.rules.Named == nil {
				w.rules.Named = map[string]Rule{}
			}
			w.rules.Named[fmt.Sprintf("example.com/r%d", i)] = rule
		}
	}
	return w
}

// change makes a random change of the world.
func (w *walk) change() {
	if len(w.pods) == 0 || len(w.pods) < 8 && w.r.IntN(30) == 0 {
		w.pods = append(w.pods, w.newPod())
		return
	}
	p := w.pods[w.r.IntN(len(w.pods))]
	d := &p.Devices[w.r.IntN(len(p.Devices))]
	switch w.r.IntN(40) {
	case 0:
		w.pods = slices.DeleteFunc(w.pods, func(one *Pod) bool { return one == p })
	case 1:
		p.Leaving = true
	case 2:
		d.Exempt = true
	case 3: // the agent is killed, and knows the acts only
		w.state = State{Acts: w.state.Acts}
		clear(w.since)
		clear(w.reported)
	case 4, 5, 6, 7: // the container exits, or begins again
		if c := p.Containers[d.Container]; c.ID == "" {
			w.made++
			p.Containers[d.Container] = Container{ID: fmt.Sprint(w.made), Started: w.now}
		} else {
			p.Containers[d.Container] = Container{}
		}
	case 8, 9, 10:
		d.Health = unknown
	case 11, 12, 13, 14, 15, 16:
		d.Health = healthy
	case 17, 18, 19, 20, 21, 22, 23, 24, 25, 26:
		d.Health = unhealthy
	default:
	}
}

func (w *walk) newPod() *Pod {
	w.made++
	p := &Pod{UID: types.UID(fmt.Sprintf("p%04d", w.made)), Containers: map[string]Container{}}
	if n := w.r.IntN(4); n > 0 {
		p.Workload = types.UID(fmt.Sprint("set", n))
	}
	for c := range 1 + w.r.IntN(2) {
		name := fmt.Sprint("c", c)
		w.made++
		p.Containers[name] = Container{ID: fmt.Sprint(w.made), Started: w.now}
		for i := range 1 + w.r.IntN(3) {
			p.Devices = append(p.Devices, Held{Health: healthy, Device: Device{Pod: p.UID, Container: name,
				Resource: fmt.Sprintf("example.com/r%d", w.r.IntN(4)), ID: fmt.Sprint(i)}})
		}
	}
	return p
}

// step changes the world, takes a step and checks it.
func (w *walk) step() error {
	w.at++
	w.now = w.now.Add(time.Duration(w.r.IntN(20)) * time.Second)
	for range 1 + w.r.IntN(3) {
		w.change()
	}
	in := Input{Now: w.now, Known: func(uid types.UID) bool {
		return slices.ContainsFunc(w.pods, func(p *Pod) bool { return p.UID == uid })
	}}
	for _, p := range w.pods {
		in.Pods = append(in.Pods, *p)
	}
	w.see(in)
	var effects []Effect
	w.state, effects = w.state.Step(in, w.rules)
	for _, e := range effects {
		if err := w.check(in, e); err != nil {
			return fmt.Errorf("%d of %s/%s %+v: %w", e.Kind, e.Pod, e.Container, e.Devices, err)
		}
	}
	return w.left(in)
}

// see brings the model's facts up to date before the step.
func (w *walk) see(in Input) {
	seen := map[Device]v1.ResourceHealthStatus{}
	for _, p := range in.Pods {
		for _, d := range p.Devices {
			seen[d.Device] = d.Health
			if d.Exempt || p.Leaving || d.Health != unhealthy {
				delete(w.since, d.Device)
				delete(w.reported, d.Device)
			} else if _, known := w.since[d.Device]; !known {
				w.since[d.Device] = w.now
			}
		}
	}
	for d := range w.since {
		if _, held := seen[d]; !held {
			delete(w.since, d)
			delete(w.reported, d)
		}
	}
	for f := range w.finished {
		if now, held := seen[f.Device]; !held || now == healthy {
			delete(w.finished, f)
		}
	}
}

// check checks an effect.
func (w *walk) check(in Input, e Effect) error {
	if e.Kind == Planned {
		for _, d := range e.Devices {
			w.reported[d] = true
		}
	}
	if e.Kind != Acted {
		return nil
	}
	over := false
	for _, d := range e.Devices {
		since, is := w.since[d]
		rule := w.rules.Of(d)
		over = over || is && !since.Add(rule.HoldOff).After(w.now)
		switch {
		case !is:
			return fmt.Errorf("%+v has not failed", d)
		case rule.Action != e.Act.Action:
			return fmt.Errorf("the rule of %+v is %+v", d, rule)
		case rule.Action.disrupts() && !w.reported[d]:
			return fmt.Errorf("%+v was not told", d)
		case w.finished[doneFor{d, rule.Action}]:
			return fmt.Errorf("%+v is done twice", d)
		}
		w.finished[doneFor{d, rule.Action}] = true
	}
	if !over {
		return fmt.Errorf("no hold-off is over")
	}
	if e.Act.Action != FailPod && e.Act.ContainerID == "" {
		return nil
	}
	workload := e.Act.Workload
	if was, ok := w.last[workload]; ok && workload != "" && was.Pod != e.Pod &&
		w.now.Sub(was.At) < w.rules.Pause {
		return fmt.Errorf("%s of %s was disrupted %s ago", was.Pod, workload, w.now.Sub(was.At))
	}
	w.last[workload] = e.Act
	return nil
}

// left checks that what is due was done, and that the next step comes in time.
func (w *walk) left(in Input) error {
	for _, p := range in.Pods {
		failed := slices.ContainsFunc(w.state.Acts, func(a Act) bool {
			return a.Action == FailPod && a.Pod == p.UID
		})
		was, taken := w.last[p.Workload]
		taken = taken && p.Workload != "" && was.Pod != p.UID && w.now.Sub(was.At) < w.rules.Pause
		for _, d := range p.Devices {
			since, is := w.since[d.Device]
			rule := w.rules.Of(d.Device)
			if !is || failed || rule.Action == None || w.finished[doneFor{d.Device, rule.Action}] {
				continue
			}
			due := since.Add(rule.HoldOff)
			switch {
			case !due.After(w.now) && !(taken && rule.Action.disrupts()):
				return fmt.Errorf("%+v is due since %s", d, w.now.Sub(due))
			case w.state.Wake.IsZero() || due.After(w.now) && w.state.Wake.After(due):
				return fmt.Errorf("%+v is due in %s, and the next step at %s", d, due.Sub(w.now), w.state.Wake)
			}
		}
	}
	return nil
}
