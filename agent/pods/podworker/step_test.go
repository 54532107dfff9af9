package podworker

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

// story is a pod, what its containers do, what happens to it, and all that the worker then does,
// with the time since the beginning.
type story struct {
	name     string
	pod      string
	programs map[string][]run
	play     func(w *world)
	want     string
	state    State
}

func tell(t *testing.T, stories []story) {
	for _, story := range stories {
		t.Run(story.name, func(t *testing.T) {
			w := newWorld(makePod(story.pod))
			w.programs = story.programs
			story.play(w)
			want := strings.ReplaceAll(strings.TrimPrefix(story.want, "\n"), "\t", "")
			if diff := cmp.Diff(want, strings.Join(w.log, "\n")); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if w.last.State != story.state {
				t.Errorf("in the end in %s, want %s", w.last.State, story.state)
			}
			if len(w.broken) > 0 {
				t.Errorf("broken: %q", w.broken)
			}
		})
	}
}

func TestStories(t *testing.T) {
	const ever = 0
	tell(t, []story{
		{
			name:  "starts all containers in order and leaves them alone",
			pod:   "Always web db",
			play:  func(w *world) { w.until(time.Hour) },
			state: SyncPod,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer web #0
				0s SyncPod: StartContainer db #0`,
		},
		{
			name: "init containers one by one, a sidecar before what follows it",
			pod:  "Always one side~ two | web",
			programs: map[string][]run{
				"one": {{time.Second, 0}}, "two": {{time.Second, 1}, {time.Second, 0}},
			},
			play:  func(w *world) { w.until(time.Hour) },
			state: SyncPod,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer one #0
				1s SyncPod: StartContainer side #0
				1s SyncPod: StartContainer two #0
				2s SyncPod: StartContainer two #1
				3s SyncPod: StartContainer web #0`,
		},
		{
			name:     "a failed init container fails the pod under Never",
			pod:      "Never side~ one | web",
			programs: map[string][]run{"one": {{time.Second, 3}}},
			play:     func(w *world) { w.until(time.Hour) },
			state:    Finished,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer side #0
				0s SyncPod: StartContainer one #0
				1s TerminatingPod: StopContainers c2 in 30s
				1s TerminatingPod: StopSandboxes s1
				1s TerminatedPod: CleanUp`,
		},
		{
			name: "an init container of which the kernel killed a process starts again",
			pod:  "OnFailure one | web",
			programs: map[string][]run{
				"one": {{time.Second, oomKilled}, {time.Second, oomKilled}, {time.Second, 0}},
			},
			play:  func(w *world) { w.until(time.Hour) },
			state: SyncPod,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer one #0
				1s SyncPod: StartContainer one #1
				12s SyncPod: StartContainer one #2
				12s SyncPod: RemoveContainers c2
				13s SyncPod: StartContainer web #0`,
		},
		{
			name:     "and fails the pod under Never",
			pod:      "Never one | web",
			programs: map[string][]run{"one": {{time.Second, oomKilled}}},
			play:     func(w *world) { w.until(time.Hour) },
			state:    Finished,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer one #0
				1s TerminatingPod: StopSandboxes s1
				1s TerminatedPod: CleanUp`,
		},
		{
			name: "the back-off doubles up to its most, a long run resets it",
			pod:  "Always web",
			programs: map[string][]run{"web": {
				{time.Second, 1}, {time.Second, 0}, {time.Second, 1}, {time.Second, 1},
				{time.Second, 1}, {time.Second, 1}, {time.Second, 1}, {time.Second, 1},
				{601 * time.Second, 1}, {time.Second, 1}, {ever, 0},
			}},
			play:  func(w *world) { w.until(3 * time.Hour) },
			state: SyncPod,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer web #0
				1s SyncPod: StartContainer web #1
				12s SyncPod: StartContainer web #2
				12s SyncPod: RemoveContainers c2
				33s SyncPod: StartContainer web #3
				33s SyncPod: RemoveContainers c3
				1m14s SyncPod: StartContainer web #4
				1m14s SyncPod: RemoveContainers c4
				2m35s SyncPod: StartContainer web #5
				2m35s SyncPod: RemoveContainers c5
				5m16s SyncPod: StartContainer web #6
				5m16s SyncPod: RemoveContainers c6
				10m17s SyncPod: StartContainer web #7
				10m17s SyncPod: RemoveContainers c7
				15m18s SyncPod: StartContainer web #8
				15m18s SyncPod: RemoveContainers c8
				25m19s SyncPod: StartContainer web #9
				25m19s SyncPod: RemoveContainers c9
				25m30s SyncPod: StartContainer web #10
				25m30s SyncPod: RemoveContainers c10`,
		},
		{
			name:     "OnFailure restarts failures only, then the pod has succeeded",
			pod:      "OnFailure web db",
			programs: map[string][]run{"web": {{5 * time.Second, 1}, {1, 0}}, "db": {{1, 0}}},
			play:     func(w *world) { w.until(time.Hour) },
			state:    Finished,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer web #0
				0s SyncPod: StartContainer db #0
				5s SyncPod: StartContainer web #1
				5.000000001s TerminatingPod: StopSandboxes s1
				5.000000001s TerminatedPod: CleanUp`,
		},
		{
			name: "the end of the regular containers ends the sidecars, last one first",
			pod:  "Never a~ b~ | job",
			programs: map[string][]run{
				"job": {{time.Minute, 0}}, "a": {{30 * time.Second, 1}, {ever, 0}},
			},
			play: func(w *world) {
				w.stopping["b"] = 10 * time.Second
				w.until(time.Hour)
			},
			state: Finished,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer a #0
				0s SyncPod: StartContainer b #0
				0s SyncPod: StartContainer job #0
				30s SyncPod: StartContainer a #1
				1m0s TerminatingPod: StopContainers c3,c5 1: c3 2: c5 in 30s
				1m10s TerminatingPod: StopSandboxes s1
				1m10s TerminatedPod: CleanUp`,
		},
		{
			name: "a stop ends regular containers together, then sidecars in what is left",
			pod:  "Always a~ b~ | web db",
			play: func(w *world) {
				w.stopping["db"], w.stopping["b"] = 7*time.Second, time.Minute
				w.until(time.Minute)
				w.want.Stop = &Stop{Grace: 20 * time.Second, Remove: true}
				w.until(time.Hour)
			},
			state: Finished,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer a #0
				0s SyncPod: StartContainer b #0
				0s SyncPod: StartContainer web #0
				0s SyncPod: StartContainer db #0
				1m0s TerminatingPod: StopContainers c5,c4,c3,c2 1: c5,c4 2: c3 3: c2 in 20s
				1m20s TerminatingPod: StopSandboxes s1
				1m20s TerminatedPod: CleanUp
				1m20s TerminatedPod: RemovePod`,
		},
		{
			name: "an orphan has a second, which the runtime rounds up to two",
			pod:  "Always web",
			play: func(w *world) {
				w.until(time.Second)
				w.want = Desired{Pod: &v1.Pod{ObjectMeta: w.pod.ObjectMeta},
					Stop: &Stop{Grace: time.Hour, Orphan: true, Remove: true}}
				w.until(time.Hour)
			},
			state: Finished,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer web #0
				1s TerminatingPod: StopContainers c2 in 2s
				1s TerminatingPod: StopSandboxes s1
				1s TerminatedPod: CleanUp
				1s TerminatedPod: RemovePod`,
		},
		{
			name: "a pod that ended keeps its records until it is stopped",
			pod:  "Never job", programs: map[string][]run{"job": {{time.Second, 1}}},
			play: func(w *world) {
				w.until(time.Minute)
				w.want.Stop = &Stop{Grace: 30 * time.Second, Remove: true}
				w.until(time.Hour)
			},
			state: Finished,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer job #0
				1s TerminatingPod: StopSandboxes s1
				1s TerminatedPod: CleanUp
				1m0s TerminatedPod: RemovePod`,
		},
		{
			name: "what is terminated keeps its records until it is to be removed",
			pod:  "Always web",
			play: func(w *world) {
				w.until(time.Minute)
				w.want.Stop = &Stop{Grace: 30 * time.Second}
				w.until(time.Hour)
				w.want.Stop = &Stop{Grace: 30 * time.Second, Remove: true}
				w.until(2 * time.Hour)
			},
			state: Finished,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer web #0
				1m0s TerminatingPod: StopContainers c2 in 30s
				1m0s TerminatingPod: StopSandboxes s1
				1m0s TerminatedPod: CleanUp
				1h0m0s TerminatedPod: RemovePod`,
		},
		{
			name: "a changed definition replaces the container whatever the policy says",
			pod:  "Never web db", programs: map[string][]run{"db": {{time.Second, 0}}},
			play: func(w *world) {
				w.until(time.Minute)
				changed := w.pod.DeepCopy()
				changed.Spec.Containers[0].Image = "other"
				w.pod, w.want.Pod = changed, changed
				w.until(time.Hour)
			},
			state: SyncPod,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer web #0
				0s SyncPod: StartContainer db #0
				1m0s SyncPod: StopContainers web c2 in 30s
				1m0s SyncPod: StartContainer web #1`,
		},
		{
			name: "what should not run is stopped before anything is started",
			pod:  "Always web db",
			play: func(w *world) {
				w.createSandbox(0)
				for _, name := range []string{"web", "gone"} {
					_ = w.create(Action{Container: name})
					w.start(&w.seen.Containers[0])
				}
				w.seen.Containers[1].State = cri.ContainerUnknown
				w.until(time.Hour)
			},
			state: SyncPod,
			want: `
				0s SyncPod: StopContainers c3,c2 in 30s
				0s SyncPod: StartContainer web #1
				0s SyncPod: StartContainer db #0`,
		},
		{
			name: "of two that run the older is stopped, and those of an earlier sandbox",
			pod:  "Always web db",
			play: func(w *world) {
				w.createSandbox(0)
				for _, name := range []string{"web", "db", "web"} {
					w.addCreated(name)
					w.start(&w.seen.Containers[0])
				}
				w.seen.Containers[1].SandboxID = "earlier"
				w.until(time.Hour)
			},
			state: SyncPod,
			want: `
				0s SyncPod: StopContainers c3,c2 in 30s
				0s SyncPod: StartContainer db #1`,
		},
		{
			name: "a pod whose records were lost runs again and is cleaned up again",
			pod:  "Never job", programs: map[string][]run{"job": {{time.Second, 0}}},
			play: func(w *world) {
				w.until(time.Minute)
				w.seen.Containers, w.seen.Sandboxes = nil, nil
				w.until(time.Hour)
			},
			state: Finished,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer job #0
				1s TerminatingPod: StopSandboxes s1
				1s TerminatedPod: CleanUp
				1m0s SyncPod: CreateSandbox #0
				1m0s SyncPod: StartContainer job #1
				1m1s TerminatingPod: StopSandboxes s3
				1m1s TerminatedPod: CleanUp`,
		},
		{
			name: "a container created but not started is made again as the same attempt",
			pod:  "Always web",
			play: func(w *world) {
				w.createSandbox(0)
				_ = w.create(Action{Container: "web"})
				w.until(time.Hour)
			},
			state: SyncPod,
			want: `
				0s SyncPod: RemoveContainers web c2
				0s SyncPod: StartContainer web #0`,
		},
		{
			name: "a regular container that cannot start does not hold up the others",
			pod:  "Always web db",
			play: func(w *world) {
				w.fault = func(a Action) (error, bool) {
					if a.Container == "web" && w.now.Before(epoch.Add(15*time.Second)) {
						return &cri.StartError{Reason: cri.ReasonImagePull, Message: "no"}, false
					}
					return nil, true
				}
				w.until(time.Hour)
			},
			state: SyncPod,
			want: `
				0s SyncPod: CreateSandbox #0
				0s SyncPod: StartContainer web #0
				0s SyncPod: StartContainer db #0
				10s SyncPod: StartContainer web #0
				20s SyncPod: StartContainer web #0`,
		},
	})
}

// sized returns the pod of TestResizeStartsAnew.
func sized(cpu, memory string) *v1.Pod {
	pod := makePod("Always side~ | web")
	for c := range podspec.Containers(pod) {
		c.Resources = podtest.Requirements("cpu=" + cpu + " memory=" + memory)
		c.ResizePolicy = []v1.ContainerResizePolicy{
			{ResourceName: v1.ResourceCPU, RestartPolicy: v1.NotRequired},
			{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}}
	}
	return pod
}

// Containers whose policy says so are started anew to have other resources, once. Of those that a kubelet made its
// record says what they had.
func TestResizeStartsAnew(t *testing.T) {
	both := []string{"Container side resize requires restart", "Container web resize requires restart"}
	for name, test := range map[string]struct {
		byKubelet bool
		next      *v1.Pod
		want      []string
	}{
		"CPU":                    {next: sized("2", "1Gi")},
		"memory":                 {next: sized("1", "2Gi"), want: both},
		"CPU, a kubelet's":       {byKubelet: true, next: sized("2", "1Gi")},
		"memory, of a kubelet's": {byKubelet: true, next: sized("1", "2Gi"), want: both},
	} {
		w := newWorld(sized("1", "1Gi"))
		w.until(time.Second)
		if test.byKubelet {
			had := podspec.ResourcesOf(w.pod)
			w.had = &had
			for i := range w.seen.Containers {
				w.seen.Containers[i].Annotations = nil
			}
		}
		w.pod, w.want.Pod = test.next, test.next
		var reported []string
		for w.round() {
			if a := w.last.Action; a.Kind == StopContainers {
				reported = append(reported, a.Message)
			}
		}
		if diff := cmp.Diff(test.want, reported); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// No pause is made before a container that resizes start anew one after the other, as it did not crash.
func TestResizesStartAnewAtOnce(t *testing.T) {
	w := newWorld(sized("1", "1Gi"))
	w.until(time.Second)
	for i, memory := range []string{"2Gi", "3Gi", "4Gi"} {
		w.pod = sized("1", memory)
		w.want.Pod = w.pod
		for w.round() {
		}
		for name, records := range w.seen.Records() {
			if last := records[0]; last.State != cri.ContainerRunning || last.Attempt != uint32(i+1) {
				t.Errorf("%s of %s: attempt %d is %v, want attempt %d to run", name, memory, last.Attempt, last.State, i+1)
			}
		}
	}
}

// The words in which it is told that a container's definition has changed are the kubelet's.
func TestDefinitionChanged(t *testing.T) {
	w := newWorld(makePod("Always side~ | web"))
	w.until(time.Second)
	changed := w.pod.DeepCopy()
	changed.Spec.InitContainers[0].Image, changed.Spec.Containers[0].Image = "other", "other"
	w.pod, w.want.Pod = changed, changed
	var reported []string
	for w.round() {
		if a := w.last.Action; a.Kind == StopContainers {
			reported = append(reported, a.Message)
		}
	}
	want := []string{"Init container side definition changed",
		"Container web definition changed, will be restarted"}
	if diff := cmp.Diff(want, reported); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
