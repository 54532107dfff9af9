package hollow

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
)

// started is a runtime with a pod of one container that follows the script.
func started(t *testing.T, script string) (*runtime, *v1.Pod) {
	t.Helper()
	r := newRuntime("198.18.0.1", func() string { return "198.19.0.1" })
	pod := podtest.New("n/a", podtest.Annotations(crisim.AnnotationPrefix+"main", script),
		podtest.Containers("main"))
	pod.Spec.Containers[0].Image = "app"
	act := podworker.Action{Kind: podworker.StartContainer, Container: "main"}
	if err := r.do(t.Context(), pod, act); err == nil {
		t.Error("a container starts without a sandbox")
	}
	for _, a := range []podworker.Action{{Kind: podworker.CreateSandbox}, act} {
		if err := r.do(t.Context(), pod, a); err != nil {
			t.Fatal(err)
		}
	}
	return r, pod
}

func seen(t *testing.T, r *runtime) cri.Pod {
	t.Helper()
	p, err := r.Observe(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestEndsByItself: a container ends as its script says, and this is reported.
func TestEndsByItself(t *testing.T) {
	r, _ := started(t, "exit=3 after=1ms")
	<-r.changed.Wake()
	c := seen(t, r).Containers[0]
	if c.State != cri.ContainerExited || c.Exit.Code != 3 || c.Exit.Reason != "Error" {
		t.Errorf("it is %s with %+v; want that it exited with 3", c.State, c.Exit)
	}
	if found := r.Probed("a"); len(found) != 0 {
		t.Errorf("probes found %v of what does not run", found)
	}
}

// TestStops: a container ends by its script when asked to, or at the end of its grace period if it
// ignores that; callers wait only as long as their context.
func TestStops(t *testing.T) {
	for script, want := range map[string]int32{
		"": 143, "term=0 term-after=1ms": 0, "term=ignore": exitKilled, "term-after=1h": exitKilled,
	} {
		r, pod := started(t, script)
		before := seen(t, r)
		id := before.Containers[0].ID
		stop := podworker.Action{Kind: podworker.StopContainers, IDs: []string{id},
			Grace: 20 * time.Millisecond}
		if err := r.do(t.Context(), pod, stop); err != nil {
			t.Fatal(err)
		}
		if c := seen(t, r).Containers[0]; c.State != cri.ContainerExited || c.Exit.Code != want {
			t.Errorf("script %q: %s with %+v; want exit code %d", script, c.State, c.Exit, want)
		}
		if before.Containers[0].State != cri.ContainerRunning {
			t.Errorf("script %q: what was observed has changed", script)
		}
	}
	r, pod := started(t, "term=ignore")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := r.do(ctx, pod, podworker.Action{Kind: podworker.StopContainers,
		IDs: []string{seen(t, r).Containers[0].ID}, Grace: time.Hour})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a stop that nobody waits for: %v", err)
	}
}

// TestStopsInOrder: a container of a later group ends after those of earlier groups.
func TestStopsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, pod := started(t, "term=0 term-after=3s")
		side := podworker.Action{Kind: podworker.StartContainer, Container: "side"}
		pod.Spec.InitContainers = []v1.Container{{Name: "side", Image: "app"}}
		if err := r.do(t.Context(), pod, side); err != nil {
			t.Fatal(err)
		}
		ids := map[string]string{}
		for _, c := range seen(t, r).Containers {
			ids[c.Name] = c.ID
		}
		begun, stop := time.Now(), podworker.Action{Kind: podworker.StopContainers,
			IDs:       []string{ids["side"], ids["main"]},
			StopOrder: [][]string{{ids["main"]}, {ids["side"]}}, Grace: time.Minute}
		if err := r.do(t.Context(), pod, stop); err != nil {
			t.Fatal(err)
		}
		for _, c := range seen(t, r).Containers {
			if after := c.Exit.At.Sub(begun); after != 3*time.Second {
				t.Errorf("%s ended after %v", c.Name, after)
			}
		}
	})
}

// TestRemoved: containers end with their sandbox, and nothing of a removed pod stays.
func TestRemoved(t *testing.T) {
	r, pod := started(t, "")
	p := seen(t, r)
	for _, a := range []podworker.Action{
		{Kind: podworker.StopSandboxes, IDs: []string{p.Sandboxes[0].ID}}, {Kind: podworker.CleanUp},
	} {
		if err := r.do(t.Context(), pod, a); err != nil {
			t.Fatal(err)
		}
	}
	if p = seen(t, r); p.Running() || p.Containers[0].Exit.Code != exitKilled {
		t.Errorf("after its sandbox was stopped: %+v", p)
	}
	if err := r.do(t.Context(), pod, podworker.Action{Kind: podworker.RemovePod}); err != nil {
		t.Fatal(err)
	}
	if _, found := r.Get("a"); found || len(r.All()) != 0 {
		t.Error("something of the pod is left")
	}
}
