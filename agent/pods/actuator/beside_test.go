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
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
)

// tokens is an API server whose token requests fail if token returns an error.
type tokens struct {
	none
	token func(ctx context.Context) error
}

func (s *tokens) Token(ctx context.Context, _ *v1.Pod, _ *v1.ServiceAccountTokenProjection) (
	[]byte, time.Time, error) {
	return []byte("token"), time.Time{}, s.token(ctx)
}

// sandboxes is a runtime that only knows the calls about sandboxes.
type sandboxes struct {
	internalapi.RuntimeService
	mu    sync.Mutex
	calls []string
	stuck error         // of stops
	ran   chan struct{} // closed by the first sandbox
}

func (s *sandboxes) call(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, what)
}

func (s *sandboxes) RunPodSandbox(context.Context, *runtimeapi.PodSandboxConfig, string) (
	string, error) {
	s.call("run")
	select {
	case <-s.ran:
	default:
		close(s.ran)
	}
	return "s", nil
}

func (s *sandboxes) StopPodSandbox(_ context.Context, id string) error {
	s.call("stop " + id)
	return s.stuck
}

func (s *sandboxes) RemovePodSandbox(_ context.Context, id string) error {
	s.call("remove " + id)
	return nil
}

// withToken returns a pod with the token volume that every pod of an API server mounts.
func withToken() *v1.Pod {
	v := v1.Volume{Name: "api"}
	v.Projected = &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
		{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}}}}
	return podtest.New("n/p", podtest.UID("u"), podtest.Containers("c"), podtest.Mounts(v))
}

// beside returns a build with an API server, a runtime and an empty root directory.
func beside(t *testing.T, server *tokens, runtime *sandboxes) build {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	volumes := newVolumes(t, root, server)
	runtime.ran = make(chan struct{})
	a := New(Config{Volumes: volumes, Objects: server, Runtime: runtime,
		Tell: Tell{Event: func(*v1.Pod, string, string, string) {},
			Node: func(string, string, string) {}}})
	b := build{Actuator: a, pod: withToken(), say: about{withToken(), a.cfg.Tell, t.Context().Err}}
	b.node.Logs.Dir, b.node.Network = filepath.Join(root, "logs"), up
	return b
}

// The sandbox is made while the API server makes a token.
func TestSandboxBesideVolumes(t *testing.T) {
	runtime := &sandboxes{}
	server := &tokens{token: func(ctx context.Context) error {
		select {
		case <-runtime.ran:
			return nil
		case <-ctx.Done():
			return errors.New("there is no sandbox while the token is made")
		}
	}}
	b := beside(t, server, runtime)
	if _, err := b.makeSandbox(t.Context(), 0, ""); err != nil {
		t.Fatal(err)
	}
	if missing, err := b.cfg.Volumes.Incomplete(b.pod); missing || err != nil {
		t.Errorf("volumes are missing: %t, %v", missing, err)
	}
	if !slices.Equal(runtime.calls, []string{"run"}) {
		t.Errorf("the runtime was asked to %q", runtime.calls)
	}
}

// If volumes fail, the sandbox is removed, and the next one waits for the volumes.
func TestSandboxIsTakenBack(t *testing.T) {
	runtime, refused := &sandboxes{}, errors.New("no such account")
	server := &tokens{token: func(context.Context) error { return refused }}
	b := beside(t, server, runtime)
	for range 2 {
		var why *cri.StartError
		if _, err := b.makeSandbox(t.Context(), 0, ""); !errors.As(err, &why) ||
			why.Reason != mountFailed {
			t.Fatalf("got %v, want that a volume failed", err)
		}
	}
	if want := []string{"run", "stop s", "remove s"}; !slices.Equal(runtime.calls, want) {
		t.Errorf("the runtime was asked to %q, want %q", runtime.calls, want)
	}
	refused = nil
	if _, err := b.makeSandbox(t.Context(), 0, ""); err != nil {
		t.Fatal(err)
	}
	if n := len(runtime.calls); n != 4 {
		t.Errorf("the runtime was asked to %q at last", runtime.calls[3:])
	}
}

// A sandbox that died keeps its address and ports until it is stopped. It is stopped before another
// one is made; if that fails, none is made.
func TestDeadSandboxIsStopped(t *testing.T) {
	runtime := &sandboxes{}
	b := beside(t, &tokens{token: func(context.Context) error { return nil }}, runtime)
	dead := cri.Pod{Sandboxes: []cri.Sandbox{{ID: "newest"}, {ID: "older"}}}
	runtime.stuck = errors.New("the network is busy")
	if _, err := b.replaceSandbox(t.Context(), dead, 2); !errors.Is(err, runtime.stuck) {
		t.Errorf("got %v, want %v", err, runtime.stuck)
	}
	runtime.stuck = nil
	if _, err := b.replaceSandbox(t.Context(), dead, 2); err != nil {
		t.Fatal(err)
	}
	if want := []string{"stop newest", "stop newest", "run"}; !slices.Equal(runtime.calls, want) {
		t.Errorf("the runtime was asked to %q, want %q", runtime.calls, want)
	}
}

// Failures after the pod was stopped make no events.
func TestStoppedMeanwhile(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	server := &tokens{token: func(ctx context.Context) error {
		stop()
		return ctx.Err()
	}}
	b := beside(t, server, &sandboxes{})
	b.cfg.Tell.Event = func(_ *v1.Pod, _, reason, message string) {
		if strings.HasPrefix(reason, "Failed") {
			t.Errorf("told %s: %s", reason, message)
		}
	}
	b.say = about{b.pod, b.cfg.Tell, ctx.Err}
	if _, err := b.makeSandbox(ctx, 0, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// If an earlier run of the agent left a sandbox without volumes, they are made before a container.
func TestVolumesOfASandboxAreCompleted(t *testing.T) {
	asked := 0
	server := &tokens{token: func(context.Context) error { asked++; return nil }}
	b := beside(t, server, &sandboxes{})
	none := b
	none.pod = podtest.New("none", podtest.Containers("c"))
	for _, b := range []build{b, b, none} {
		before, err := b.cfg.Volumes.Incomplete(b.pod)
		if err != nil || before != (asked == 0 || b.pod == none.pod) {
			t.Errorf("volumes of pod %s are missing: %t, %v", b.pod.UID, before, err)
		}
		if err := b.completeVolumes(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if missing, err := b.cfg.Volumes.Incomplete(none.pod); missing || err != nil {
		t.Errorf("of a pod without any volumes are missing: %t, %v", missing, err)
	}
	if missing, err := b.cfg.Volumes.Incomplete(b.pod); missing || err != nil || asked != 1 {
		t.Errorf("volumes are missing: %t, %v; %d tokens were asked for", missing, err, asked)
	}
}
