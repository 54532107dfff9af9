package podworker

import (
	"slices"
	"testing"
	"time"
)

// Sidecars are stopped when the regular containers have ended, then one by one, and whatever is left
// when the grace is over at once. They wait for no other containers.
func TestStopsInOrder(t *testing.T) {
	tell(t, []story{
		{
			name: "a sidecar waits for the hook of none but those that end before it",
			pod:  "Always a~ b~ c~ | web db",
			play: func(w *world) {
				hooked(w.pod.Spec.InitContainers, "a", "c")
				hooked(w.pod.Spec.Containers, "web")
				w.until(time.Second)
				w.want.Stop = &Stop{Grace: 20 * time.Second}
				w.stopping["web"], w.stopping["b"] = 5*time.Second, 3*time.Second
				w.until(time.Hour)
			},
			state: Finished,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer a #0
				0s SyncPod: PostStart a c2
				0s SyncPod: StartContainer b #0
				0s SyncPod: StartContainer c #0
				0s SyncPod: PostStart c c4
				0s SyncPod: StartContainer web #0
				0s SyncPod: PostStart web c5
				0s SyncPod: StartContainer db #0
				1s TerminatingPod: StopContainers c6,c5,c4,c3,c2 1: c6,c5 2: c4 3: c3 4: c2 hooks c5,c4,c2 in 20s
				9s TerminatingPod: StopSandboxes s1
				9s TerminatedPod: CleanUp`,
		},
		{
			name: "all that is left when the grace is over is stopped together",
			pod:  "Always a~ b~ | web",
			play: func(w *world) {
				w.until(time.Second)
				w.want.Stop = &Stop{Grace: 10 * time.Second}
				for _, name := range []string{"a", "b", "web"} {
					w.stopping[name] = time.Hour
				}
				w.until(time.Hour)
			},
			state: Finished,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer a #0
				0s SyncPod: StartContainer b #0
				0s SyncPod: StartContainer web #0
				1s TerminatingPod: StopContainers c4,c3,c2 1: c4 2: c3 3: c2 in 10s
				13s TerminatingPod: StopSandboxes s1
				13s TerminatedPod: CleanUp`,
		},
		{
			name:     "a sidecar waits for no ephemeral and no other init container",
			pod:      "Always side~ init | web",
			programs: map[string][]run{"init": {{0, 0}}},
			play: func(w *world) {
				w.want.Pod = debugged(w.pod, "debug")
				w.until(time.Second)
				w.want.Stop = &Stop{Grace: 10 * time.Second}
				w.until(time.Hour)
			},
			state: Finished,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer side #0
				0s SyncPod: StartContainer init #0
				0s SyncPod: StartContainer debug #0
				1s TerminatingPod: StopContainers c4,c3,c2 in 10s
				1s TerminatingPod: StopSandboxes s1
				1s TerminatedPod: CleanUp`,
		},
		{
			name: "the first sidecar waits for the last though the one between them has exited",
			pod:  "Never a~ b~ c~ | web",
			play: func(w *world) {
				w.until(time.Second)
				w.exit(&w.seen.Containers[2], 1, w.now) // b
				w.want.Stop = &Stop{Grace: 10 * time.Second}
				w.until(time.Hour)
			},
			state: Finished,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer a #0
				0s SyncPod: StartContainer b #0
				0s SyncPod: StartContainer c #0
				0s SyncPod: StartContainer web #0
				1s TerminatingPod: StopContainers c5,c4,c2 1: c5 2: c4 3: c2 in 10s
				1s TerminatingPod: StopSandboxes s1
				1s TerminatedPod: CleanUp`,
		},
	})
}

// stop stops the containers in their turns, and takes as long as they do.
func (m *machine) stop(a Action) {
	m.require(a.Grace >= minStop, "stopped with grace %v", a.Grace)
	begun, last := m.now, m.stopThese(a.Aside(), m.now, a.Grace)
	group, end := begun, begun.Add(a.Grace)
	for _, ids := range a.StopOrder {
		ended := m.stopThese(ids, group, StopGrace(end.Sub(group)))
		last = later(last, ended)
		if group = ended; group.After(end) {
			group = end
		}
	}
	m.now = last
}

// stopThese stops containers at a time, and says when the last has ended.
func (m *machine) stopThese(ids []string, at time.Time, grace time.Duration) time.Time {
	last := at
	for i := range m.seen.Containers {
		c := &m.seen.Containers[i]
		if !slices.Contains(ids, c.ID) || !maybeRunning(*c) {
			continue
		}
		code, takes := m.obeys, m.stopping[c.Name]
		if takes > grace {
			code, takes = 137, grace
		}
		m.exit(c, code, at.Add(takes))
		last = later(last, at.Add(takes))
	}
	return last
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
