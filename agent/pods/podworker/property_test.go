package podworker

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

func drawPod(t *rapid.T) *v1.Pod {
	var line strings.Builder
	line.WriteString(rapid.SampledFrom([]string{"Always", "OnFailure", "Never"}).Draw(t, "policy"))
	for i := range rapid.IntRange(0, 3).Draw(t, "inits") {
		fmt.Fprintf(&line, " i%d%s", i, rapid.SampledFrom([]string{"", "~"}).Draw(t, "sidecar"))
	}
	line.WriteString(" |")
	for i := range rapid.IntRange(1, 3).Draw(t, "regular") {
		fmt.Fprintf(&line, " r%d", i)
	}
	return makePod(line.String())
}

// drawRestartsAll is drawPod with containers that have all of the pod restarted when they fail.
func drawRestartsAll(t *rapid.T) *v1.Pod {
	pod := drawPod(t)
	for _, c := range listed(pod) {
		if rapid.IntRange(0, 7).Draw(t, "all") == 0 {
			restartsAllAt(c, 1)
		}
	}
	return pod
}

// restartsAllAt has all containers of the pod restart when one exits with a code.
func restartsAllAt(c *v1.Container, code int32) {
	c.RestartPolicyRules = []v1.ContainerRestartRule{{
		Action: v1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
			Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{code}},
	}}
}

// drawPrograms gives each container up to three failing or succeeding attempts and an end that
// makes the pod settle: init containers succeed, regular ones stay or succeed.
func drawPrograms(t *rapid.T, pod *v1.Pod) map[string][]run {
	out := map[string][]run{}
	for c := range podspec.Containers(pod) {
		var runs []run
		for range rapid.IntRange(0, 3).Draw(t, "runs") {
			runs = append(runs, run{
				lasts: time.Duration(rapid.IntRange(1, 20).Draw(t, "s")) * time.Second,
				code:  int32(rapid.IntRange(oomKilled, 1).Draw(t, "code")),
			})
		}
		last := run{lasts: time.Second}
		regular := strings.HasPrefix(c.Name, "r")
		mayEnd := pod.Spec.RestartPolicy != v1.RestartPolicyAlways
		if podspec.IsSidecar(c) || regular && !(mayEnd && rapid.Bool().Draw(t, "ends")) {
			last = run{} // for ever
		}
		out[c.Name] = append(runs, last)
	}
	return out
}

// disturb does to the machine what happens in a life: crashes of things, and of the agent.
func disturb(t *rapid.T, w *world) {
	switch rapid.IntRange(0, 6).Draw(t, "disturbance") {
	case 0:
		w.loseSandbox()
	case 1: // the agent died between create and start, of which there is none while all is to restart
		if status.RestartAll(w.pod, w.seen).Len() > 0 {
			return
		}
		c := rapid.SampledFrom(listed(w.pod)).Draw(t, "container")
		if record, ok := w.seen.Container(c.Name); !ok || record.State == cri.ContainerExited {
			if len(w.seen.Sandboxes) > 0 && w.seen.Sandboxes[0].Ready {
				w.addCreated(c.Name)
			}
		}
	case 2:
		for i := range w.seen.Containers {
			if c := &w.seen.Containers[i]; c.State == cri.ContainerRunning {
				c.State = cri.ContainerUnknown
				return
			}
		}
	case 3:
		w.eachSandbox(func(s *cri.Sandbox) { s.IPs = nil })
	case 4:
		for i := range w.seen.Containers {
			if c := &w.seen.Containers[i]; c.State == cri.ContainerRunning {
				w.exit(c, 137, w.now)
				return
			}
		}
	case 5:
		changed := w.pod.DeepCopy()
		c := rapid.SampledFrom(changed.Spec.Containers).Draw(t, "changed")
		for i := range changed.Spec.Containers {
			if changed.Spec.Containers[i].Name == c.Name {
				changed.Spec.Containers[i].Image += "x"
			}
		}
		w.pod, w.want.Pod = changed, changed
	default:
		w.memory = newMemory(nil)
	}
}

// addCreated is create without the checks of what is asked: nobody asks.
func (m *machine) addCreated(name string) {
	m.ids++
	attempt := uint32(0)
	for _, c := range m.seen.Records()[name] {
		attempt = max(attempt, c.Attempt+1)
	}
	m.seen.Containers = slices.Insert(m.seen.Containers, 0, cri.Container{
		ID: fmt.Sprintf("c%d", m.ids), Name: name, SandboxID: m.seen.Sandboxes[0].ID,
		State: cri.ContainerCreated, Attempt: attempt, CreatedAt: m.now,
		From: cri.Origin{Hash: m.hash(name)},
	})
}

// drawFault lets actions fail before or after they took effect, and the agent die after that.
func drawFault(t *rapid.T, w *world) func(Action) (error, bool) {
	return func(Action) (error, bool) {
		switch rapid.IntRange(0, 5).Draw(t, "fault") {
		case 0:
			return errors.New("fault"), false
		case 1:
			return errors.New("fault after the effect"), true
		case 2:
			w.memory = newMemory(nil)
			return nil, rapid.Bool().Draw(t, "done")
		default:
			return nil, true
		}
	}
}

// Whatever happens on the way, a pod arrives where its spec wants it, nothing is started out of
// turn, nothing runs twice and nothing that runs as it should is stopped.
func TestConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pod := drawRestartsAll(t)
		w := newWorld(pod)
		w.uses = rapid.Bool().Draw(t, "claims")
		w.programs = drawPrograms(t, pod)
		w.fault = drawFault(t, w)
		for range rapid.IntRange(0, 12).Draw(t, "disturbances") {
			for range rapid.IntRange(0, 6).Draw(t, "rounds") {
				w.round()
			}
			w.now = w.now.Add(time.Duration(rapid.IntRange(0, 30).Draw(t, "s")) * time.Second)
			disturb(t, w)
			if len(w.broken) > 0 {
				t.Fatalf("%q after\n%s", w.broken, strings.Join(w.log, "\n"))
			}
		}
		w.fault = nil
		w.until(w.now.Sub(epoch) + 24*time.Hour)
		if problem := notConverged(w); problem != "" {
			t.Fatalf("%s in\n%s\nafter\n%s", problem, w.state(), strings.Join(w.log, "\n"))
		}
		w.want.Stop = &Stop{Grace: 30 * time.Second, Remove: true}
		w.until(w.now.Sub(epoch) + time.Hour)
		if w.last.State != Finished || recorded(w.seen) || !w.cleaned || w.holds {
			t.Fatalf("not gone but %s:\n%s", w.last.State, w.state())
		}
		if len(w.broken) > 0 {
			t.Fatalf("%q after\n%s", w.broken, strings.Join(w.log, "\n"))
		}
	})
}

// Whatever a runtime that answers at once says, nothing is made without end.
func TestCreationsAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(drawRestartsAll(t))
		w.programs = drawPrograms(t, w.pod)
		lies := rapid.SliceOfN(rapid.IntRange(0, 9), 1, 20).Draw(t, "lies")
		made := map[string]int{}
		w.fault = func(a Action) (error, bool) {
			if a.Kind == CreateSandbox || a.Kind == StartContainer {
				made[a.Container]++
			}
			return nil, true
		}
		for i := 0; w.now.Before(epoch.Add(20 * time.Minute)); i++ {
			if i > 1000 {
				t.Fatalf("%d rounds in %v:\n%s", i, w.now.Sub(epoch), strings.Join(w.log, "\n"))
			}
			lie(w.machine, lies[i%len(lies)])
			if !w.round() {
				w.now = w.now.Add(5 * time.Second)
			}
		}
		for name, times := range made {
			if times > 12 {
				t.Fatalf("%q made %d times:\n%s", name, times, strings.Join(w.log, "\n"))
			}
		}
	})
}

// lie makes the runtime say something that was not asked for.
func lie(m *machine, what int) {
	if len(m.seen.Sandboxes) == 0 {
		return
	}
	newest := &m.seen.Sandboxes[0]
	switch what {
	case 0:
		m.loseSandbox()
	case 1:
		newest.IPs = nil
	case 2:
		newest.Attempt, newest.CreatedAt = 0, m.now.Add(-time.Hour)
	case 3:
		newest.CreatedAt = m.now.Add(time.Hour)
	case 4:
		m.seen.Containers, m.seen.Sandboxes = nil, nil
	case 5:
		m.seen.Containers = nil
	case 6, 7, 8:
		for i := range m.seen.Containers {
			c := &m.seen.Containers[i]
			switch what {
			case 6:
				c.State, c.Attempt = cri.ContainerCreated, 0
			case 7:
				c.From.Hash = "another"
			default:
				m.exit(c, 1, m.now)
				c.StartedAt, c.Attempt = m.now.Add(-time.Hour), 0
			}
		}
	}
}

// unsettled says what is missing at the end of a pod's story, by the pod's spec alone.
func notConverged(w *world) string {
	if w.last.State == Finished {
		if w.pod.Spec.RestartPolicy == v1.RestartPolicyAlways {
			return "a pod that always restarts has finished"
		}
		if alive(w.seen) {
			return "finished and alive"
		}
		return ""
	}
	if w.last.State != SyncPod || w.last.Action != nil {
		return fmt.Sprintf("still busy: %+v", w.last)
	}
	if problem := status.SandboxProblem(w.pod, w.seen); problem != "" {
		return problem
	}
	for i, c := range listed(w.pod) {
		var running []cri.Container
		for _, record := range w.seen.Records()[c.Name] {
			if record.State == cri.ContainerRunning {
				running = append(running, record)
			}
		}
		init := i < len(w.pod.Spec.InitContainers)
		mustRun := w.pod.Spec.RestartPolicy == v1.RestartPolicyAlways && !init ||
			init && podspec.IsSidecar(c)
		switch {
		case len(running) > 1:
			return c.Name + " runs more than once"
		case len(running) == 1 && running[0].From.Hash != cri.ContainerHash(c):
			return c.Name + " runs an old definition"
		case mustRun && len(running) == 0:
			return c.Name + " does not run"
		}
	}
	return ""
}

// Wherever the agent dies, before or after an action took effect, the machine ends up
// in the same state as if it had not.
func TestDiesAnywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pod := drawPod(t)
		programs := drawPrograms(t, pod)
		stop := rapid.Bool().Draw(t, "stop")
		play := func(deathAt int, done bool) (*world, string) {
			w := newWorld(pod)
			w.programs = programs
			actions := 0
			w.fault = func(Action) (error, bool) {
				actions++
				if actions-1 != deathAt {
					return nil, true
				}
				w.memory = newMemory(nil)
				return nil, done
			}
			w.until(12 * time.Hour)
			if stop {
				w.want.Stop = &Stop{Remove: true}
				w.until(13 * time.Hour)
			}
			if len(w.broken) > 0 {
				t.Fatalf("%q after\n%s", w.broken, strings.Join(w.log, "\n"))
			}
			return w, string(w.last.State) + "\n" + w.state()
		}
		undisturbed, want := play(-1, false)
		for deathAt := range undisturbed.log {
			for _, done := range []bool{false, true} {
				w, got := play(deathAt, done)
				if got != want {
					t.Fatalf("died at action %d (done %v):\n%s\ninstead of\n%s\nafter\n%s",
						deathAt, done, got, want, strings.Join(w.log, "\n"))
				}
			}
		}
	})
}
