package probe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/pods/handler"
	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

// world is a prober, the containers that it asks, and those that it informs.
type world struct {
	*Prober
	begun time.Time

	mu      sync.Mutex
	answers map[string]string // by the first word of a probe's command: pass, warn, fail, err, hang
	under   map[string]int    // running probes by the first word
	log     []string
}

// inWorld runs a prober in virtual time.
func inWorld(t *testing.T, test func(*world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{begun: time.Now(), answers: map[string]string{}, under: map[string]int{}}
		var err error
		w.Prober, err = New(Config{Ask: w.ask, Wake: func(uid types.UID) {
			w.note("wake %s", uid)
		}, Tell: func(of podspec.Ref, kind, reason, message string) {
			if of.FieldPath() == "" {
				t.Errorf("%s is told of no container of its pod: %q", reason, of.Container)
			}
			w.note("%s %s: %s", kind, reason, message)
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		test(w)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func (w *world) ask(ctx context.Context, p *v1.Probe, target handler.Target) (
	handler.Outcome, error) {
	name := p.HTTPGet.Path
	w.note("ask %s of %s", name, target.ID)
	w.mu.Lock()
	answer := w.answers[name]
	w.under[name]++
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.under[name]--
	}()
	switch answer {
	case "warn":
		return handler.Outcome{Result: handler.Warning, Output: "elsewhere"}, nil
	case "fail":
		return handler.Outcome{Result: handler.Failure, Output: "out of order"}, nil
	case "err":
		return handler.Outcome{}, errors.New("no such port")
	case "hang":
		<-ctx.Done()
		return handler.Outcome{Result: handler.Failure, Output: ctx.Err().Error()}, nil
	default:
		return handler.Outcome{Result: handler.Success}, nil
	}
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := time.Since(w.begun).Truncate(100 * time.Millisecond)
	w.log = append(w.log, at.String()+" "+fmt.Sprintf(format, args...))
}

func (w *world) answer(name, how string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers[name] = how
}

// after lets time pass and returns what was logged meanwhile.
func (w *world) after(d time.Duration) []string {
	time.Sleep(d)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.log
	w.log = nil
	return out
}

func check(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got, cmp.Transformer("empty", func(s []string) []string {
		return append([]string{}, s...)
	})); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func get(path string, every int32) *v1.Probe {
	return &v1.Probe{PeriodSeconds: every, TimeoutSeconds: 1, FailureThreshold: 2,
		ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: path}}}
}

// runs returns the status of a pod whose containers run since a time, and whether they have
// started.
func runs(pod *v1.Pod, since time.Time, started bool) v1.PodStatus {
	s := v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.0.0.1"}
	for _, c := range pod.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, v1.ContainerStatus{
			Name: c.Name, ContainerID: "sim://" + c.Name + "0", Started: ptr.To(started),
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{
				StartedAt: metav1.NewTime(since)}},
		})
	}
	return s
}

func podOf(uid types.UID, containers ...v1.Container) *v1.Pod {
	return podtest.New("ns/pod", podtest.UID(uid),
		func(p *v1.Pod) { p.Spec.Containers = containers })
}

// A container is asked whether it has started until it has, then for the rest. Answers that count
// wake its worker.
func TestLife(t *testing.T) {
	c := v1.Container{Name: "c", StartupProbe: get("start", 1), LivenessProbe: get("live", 5),
		ReadinessProbe: get("ready", 2)}
	c.LivenessProbe.InitialDelaySeconds = 3
	pod := podOf("u", c)
	inWorld(t, func(w *world) {
		w.answer("start", "fail")
		w.Follow(pod, runs(pod, w.begun, false), false)
		check(t, "not started", w.after(500*time.Millisecond), "0s ask start of c0",
			"0s Warning Unhealthy: Startup probe failed: out of order")
		w.answer("start", "pass")
		check(t, "started", w.after(time.Second), "1s ask start of c0", "1s wake u")
		if got := w.Probed("u"); got["c0"] != (status.Probed{Startup: status.Passes}) {
			t.Errorf("found %+v", got)
		}
		check(t, "it waits for the status", w.after(time.Second))
		w.answer("ready", "warn")
		started := runs(pod, w.begun, true)
		w.Follow(pod, started, false)
		check(t, "the rest", w.after(time.Second), "2.5s ask ready of c0", "2.5s wake u",
			"2.5s Warning ProbeWarning: Readiness probe warning: elsewhere", "3s ask live of c0",
			"3s wake u")
		w.answer("ready", "fail")
		w.answer("live", "fail")
		w.Follow(pod, started, false)
		w.after(5 * time.Second)
		check(t, "all fail", w.after(5*time.Second),
			"10.5s ask ready of c0", "10.5s Warning Unhealthy: Readiness probe failed: out of order",
			"12.5s ask ready of c0", "12.5s Warning Unhealthy: Readiness probe failed: out of order",
			"13s ask live of c0", "13s Warning Unhealthy: Liveness probe failed: out of order",
			"13s wake u")
		want := status.Probed{Startup: status.Passes, Liveness: status.Fails, Readiness: status.Fails}
		if got := w.Probed("u"); got["c0"] != want {
			t.Errorf("found %+v", got)
		}
		w.answer("ready", "pass")
		check(t, "a container that is about to be stopped is not asked whether it lives",
			w.after(7*time.Second), "14.5s ask ready of c0", "14.5s wake u",
			"16.5s ask ready of c0", "18.5s ask ready of c0", "20.5s ask ready of c0")
		started.ContainerStatuses[0].State = v1.ContainerState{}
		w.Follow(pod, started, false)
		w.after(0)
		if got := w.Probed("u"); len(got) > 0 {
			t.Errorf("of a container that has exited: %+v", got)
		}
		again := runs(pod, time.Now(), false)
		again.ContainerStatuses[0].ContainerID = "sim://c1"
		w.Follow(pod, again, false)
		check(t, "another run of it", w.after(500*time.Millisecond), "20.5s ask start of c1",
			"20.5s wake u")
		again.Phase = v1.PodFailed
		w.Follow(pod, again, false)
		check(t, "its pod has ended", w.after(time.Minute))
		if len(w.pods) > 0 || len(w.schedule) > 0 {
			t.Errorf("%d pods are left, %d probes", len(w.pods), len(w.schedule))
		}
	})
}

// A pod that is being ended is probed only for readiness.
func TestEnding(t *testing.T) {
	pod := podOf("u", v1.Container{Name: "c", LivenessProbe: get("live", 1),
		ReadinessProbe: get("ready", 1)})
	inWorld(t, func(w *world) {
		w.Follow(pod, runs(pod, w.begun, true), false)
		w.after(500 * time.Millisecond)
		w.Follow(pod, runs(pod, w.begun, true), true)
		check(t, "ending", w.after(time.Second), "500ms wake u", "1s ask ready of c0")
		w.Forget("u")
		w.Forget("u")
		w.Follow(pod, v1.PodStatus{Phase: v1.PodFailed}, true)
		check(t, "gone", w.after(time.Minute))
	})
}

// After a restart of the agent there are no results until enough answers came. A container that had
// started is not probed for that again, and probes of a ready container keep their rhythm.
func TestAfterRestart(t *testing.T) {
	pod := podOf("u", v1.Container{Name: "c", StartupProbe: get("start", 1),
		ReadinessProbe: get("ready", 10)})
	inWorld(t, func(w *world) {
		w.answer("ready", "fail")
		s := runs(pod, w.begun.Add(-12*time.Second), true)
		s.ContainerStatuses[0].Ready = true
		w.Follow(pod, s, false)
		check(t, "as before", w.after(7*time.Second), "0s wake u")
		want := status.Probed{Startup: status.Passes}
		if got := w.Probed("u"); got["c0"] != want {
			t.Errorf("found %+v", got)
		}
		check(t, "at its times", w.after(2*time.Second), "8s ask ready of c0",
			"8s Warning Unhealthy: Readiness probe failed: out of order")
		if got := w.Probed("u"); got["c0"] != want {
			t.Errorf("one failure counts: %+v", got)
		}
		check(t, "the second counts", w.after(10*time.Second), "18s ask ready of c0", "18s wake u",
			"18s Warning Unhealthy: Readiness probe failed: out of order")
	})
}

// If it becomes known late that a container had started before a restart of the agent, its startup
// probe stops.
func TestStartedIsKnownLate(t *testing.T) {
	pod := podOf("u", v1.Container{Name: "c", StartupProbe: get("start", 10),
		LivenessProbe: get("live", 10)})
	pod.Spec.Containers[0].StartupProbe.InitialDelaySeconds = 30
	inWorld(t, func(w *world) {
		w.Follow(pod, runs(pod, w.begun.Add(-12*time.Second), false), false)
		check(t, "not known", w.after(time.Second))
		w.Follow(pod, runs(pod, w.begun.Add(-12*time.Second), true), false)
		check(t, "known", w.after(time.Minute), "1s wake u", "8s ask live of c0", "8s wake u",
			"18s ask live of c0", "28s ask live of c0", "38s ask live of c0",
			"48s ask live of c0", "58s ask live of c0")
	})
}

// A question that cannot be asked is tried three times, makes an event, and does not count.
func TestCannotAsk(t *testing.T) {
	pod := podOf("u", v1.Container{Name: "c", LivenessProbe: get("live", 10)})
	inWorld(t, func(w *world) {
		w.answer("live", "err")
		w.Follow(pod, runs(pod, w.begun, true), false)
		check(t, "asked", w.after(9*time.Second), "0s ask live of c0", "0s ask live of c0",
			"0s ask live of c0",
			"0s Warning Unhealthy: Liveness probe errored and resulted in unknown state: no such port")
		if got := w.Probed("u"); len(got) > 0 {
			t.Errorf("found %+v", got)
		}
	})
}

// Probes that hang are bounded and delay no other pod's. When they end, waiting ones run; when the
// container ends, they end at once without an event.
func TestOneHangs(t *testing.T) {
	var many []v1.Container
	for i := range 20 {
		many = append(many, v1.Container{Name: fmt.Sprint("c", i), LivenessProbe: get("hang", 1)})
		many[i].LivenessProbe.TimeoutSeconds = 60
	}
	bad := podOf("bad", many...)
	good := podOf("good", v1.Container{Name: "c", ReadinessProbe: get("ready", 1)})
	inWorld(t, func(w *world) {
		w.answer("hang", "hang")
		w.Follow(bad, runs(bad, w.begun, true), false)
		w.Follow(good, runs(good, w.begun, true), false)
		asked := strings.Join(w.after(10500*time.Millisecond), "\n")
		if n := strings.Count(asked, "ask ready"); n != 11 {
			t.Errorf("the other pod was asked %d times, want 11", n)
		}
		if n := strings.Count(asked, "ask hang"); n != maxAtOnce {
			t.Errorf("%d probes of one pod at once, want %d", n, maxAtOnce)
		}
		asked = strings.Join(w.after(time.Minute), "\n")
		if n := strings.Count(asked, "ask hang"); n != maxAtOnce {
			t.Errorf("after the first: %d, want %d", n, maxAtOnce)
		}
		w.after(time.Minute)
		w.Follow(bad, v1.PodStatus{Phase: v1.PodRunning}, false)
		asked = strings.Join(w.after(500*time.Millisecond), "\n")
		if w.under["hang"] != 0 || strings.Contains(asked, "probe failed") {
			t.Errorf("%d are under way after the end\n%s", w.under["hang"], asked)
		}
	})
}

// The metrics of a probe exist as long as its pod does.
func TestMetrics(t *testing.T) {
	pod := podOf("u", v1.Container{Name: "c", LivenessProbe: get("live", 1),
		ReadinessProbe: get("ready", 1)})
	inWorld(t, func(w *world) {
		w.answer("live", "fail")
		w.Follow(pod, runs(pod, w.begun, true), false)
		w.after(3500 * time.Millisecond)
		metrics := func() string {
			r := httptest.NewRecorder()
			w.Route().Handler.ServeHTTP(r, httptest.NewRequest("GET", "/metrics/probes", nil))
			return r.Body.String()
		}
		got := metrics()
		for _, want := range []string{
			`prober_probe_total{container="c",namespace="ns",pod="pod",pod_uid="u",` +
				`probe_type="Liveness",result="failed"} 2`,
			`prober_probe_total{container="c",namespace="ns",pod="pod",pod_uid="u",` +
				`probe_type="Readiness",result="successful"} 4`,
			`prober_probe_duration_seconds_count{container="c",namespace="ns",pod="pod",` +
				`probe_type="Readiness"} 4`,
		} {
			if !strings.Contains(got, want) {
				t.Errorf("no %s in\n%s", want, got)
			}
		}
		w.Forget("u")
		if got := metrics(); strings.Contains(got, "probe_type") {
			t.Errorf("of a pod that is gone:\n%s", got)
		}
	})
}

// A sidecar is probed like other containers, an init container is not.
func TestWanted(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	pod := podOf("u")
	pod.Spec.InitContainers = []v1.Container{
		{Name: "init", LivenessProbe: get("x", 1)},
		{Name: "side", RestartPolicy: &always, StartupProbe: get("x", 1)},
	}
	s := v1.PodStatus{}
	for _, c := range pod.Spec.InitContainers {
		s.InitContainerStatuses = append(s.InitContainerStatuses, v1.ContainerStatus{Name: c.Name,
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}})
	}
	got := slices.Collect(maps.Keys(wanted(pod, s, false)))
	if len(got) != 1 || got[0] != (key{"side", Startup}) {
		t.Errorf("wanted %v", got)
	}
}
