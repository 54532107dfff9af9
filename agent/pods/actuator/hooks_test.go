package actuator

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	internalapi "k8s.io/cri-api/pkg/apis"

	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

// stoppable is a runtime that stops containers and runs the commands "good", "bad" and "hang".
type stoppable struct {
	internalapi.RuntimeService
	mu  sync.Mutex
	log []string
}

func (s *stoppable) note(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, text)
}

func (s *stoppable) StopContainer(_ context.Context, id string, grace int64) error {
	s.note("stop " + id + " in " + time.Duration(grace*int64(time.Second)).String())
	return nil
}

func (s *stoppable) ExecSync(ctx context.Context, id string, words []string, _ time.Duration) (
	[]byte, []byte, error) {
	s.note(words[0] + " in " + id)
	switch words[0] {
	case "bad":
		return nil, []byte("secret"), errors.New("exited with 1")
	case "hang":
		<-ctx.Done()
		s.note("cut in " + id)
		return nil, nil, ctx.Err()
	}
	return nil, nil, nil
}

func hookedPod(command string) (*v1.Pod, cri.Pod) {
	hook := &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{command}}}
	pod := podtest.New("u", podtest.Containers("web", "db"))
	pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: hook, PreStop: hook}
	return pod, cri.Pod{Containers: []cri.Container{{ID: "w", Name: "web"}, {ID: "d", Name: "db"}}}
}

func newHooked(t *testing.T) (*Actuator, *stoppable) {
	r := &stoppable{}
	volumes := newVolumes(t, filepath.Join(t.TempDir(), "root"), nil)
	return New(Config{Runtime: r, Volumes: volumes, Node: Node{Network: up}, Tell: Tell{
		Hooked: func(bool, error) {},
		Event: func(_ *v1.Pod, eventType, reason, message string) {
			r.note(eventType + " " + reason + ": " + message)
		},
		Container: func(of podspec.Ref, eventType, reason, message string) {
			r.note(of.Container + " " + eventType + " " + reason + ": " + message)
		}}}), r
}

// A hook shares the grace period with its container, which always has two seconds. A hook that
// fails changes nothing else; one that takes longer lives as long as its container.
func TestPreStop(t *testing.T) {
	for command, want := range map[string][]string{
		"good": {"good in w", "stop w in 3s", "stop d in 3s"},
		"bad": {"bad in w", "web Warning FailedPreStopHook: PreStopHook failed", "stop w in 3s",
			"stop d in 3s"},
		"hang": {"hang in w", "stop d in 3s", "cut in w", "web Warning FailedPreStopHook: PreStopHook failed",
			"stop w in 2s"},
	} {
		a, r := newHooked(t)
		pod, observed := hookedPod(command)
		stop := podworker.Action{Kind: podworker.StopContainers, IDs: []string{"w", "d"},
			Hooks: []string{"w"}, Grace: 3 * time.Second}
		if err := a.stopContainers(t.Context(), pod, observed, stop); err != nil {
			t.Fatal(err)
		}
		want = append(want, "web Normal Killing: Stopping container web",
			"db Normal Killing: Stopping container db")
		if cut := slices.Index(r.log, "cut in w"); cut >= 0 && cut < slices.Index(r.log, "stop w in 2s") {
			t.Errorf("%s: it is cut before its container is stopped: %q", command, r.log)
		}
		slices.Sort(want)
		slices.Sort(r.log)
		if !slices.Equal(r.log, want) {
			t.Errorf("%s: %q, want %q", command, r.log, want)
		}
	}
}

// A cancelled stop breaks off the hook and stops nothing: the worker decides anew.
func TestPreStopHastened(t *testing.T) {
	a, r := newHooked(t)
	pod, observed := hookedPod("hang")
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	err := a.stopContainers(ctx, pod, observed, podworker.Action{Kind: podworker.StopContainers,
		IDs: []string{"w"}, Hooks: []string{"w"}, Grace: time.Hour})
	if got := strings.Join(r.log, ","); !errors.Is(err, context.Canceled) ||
		strings.Contains(got, "stop w") || strings.Contains(got, "Failed") {
		t.Errorf("%v, %q", err, got)
	}
}

// The output of a postStart hook is in the status and not in the event. The hook is pending until
// it has succeeded.
func TestPostStart(t *testing.T) {
	a, r := newHooked(t)
	bad, observed := hookedPod("bad")
	if err := a.cfg.Volumes.Records.HookPends("u", "web", 3); err != nil {
		t.Fatal(err)
	}
	run := podworker.Action{Kind: podworker.PostStart, Container: "web", IDs: []string{"w"}}
	_, err := a.Do(t.Context(), bad, observed, run, nil)
	var why *cri.StartError
	if !errors.As(err, &why) || why.Reason != cri.ReasonPostStartHook ||
		!strings.Contains(why.Message, "secret") {
		t.Errorf("error %v", err)
	}
	if got := strings.Join(r.log, ","); got !=
		"bad in w,web Warning FailedPostStartHook: PostStartHook failed" {
		t.Errorf("%q", got)
	}
	good, _ := hookedPod("good")
	if got := a.cfg.Volumes.Records.HooksPending(good); got["web"] != 3 {
		t.Errorf("pending %v", got)
	}
	if _, err := a.Do(t.Context(), good, observed, run, nil); err != nil {
		t.Error(err)
	}
	if got := a.cfg.Volumes.Records.HooksPending(good); len(got) != 0 {
		t.Errorf("pending %v", got)
	}
}
