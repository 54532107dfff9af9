package containerd_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/test/harness"
)

// TestBurst: of pods that come together the first ones run long before the last ones have a
// sandbox.
func TestBurst(t *testing.T) {
	const pods = 40
	w := newWorld(t)
	for i := range pods {
		w.create(fmt.Sprintf("burst-%02d", i), simple("--print"))
	}
	w.Start()
	client, err := cri.Connect(t.Context(),
		cri.Config{RuntimeEndpoint: w.daemon.Endpoint(), Timeout: harness.Patience})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	w.Eventually("all pods run", func() error {
		all, err := client.Pods(t.Context())
		running := slices.DeleteFunc(all, func(p cri.Pod) bool {
			return len(p.Containers) == 0 || p.Containers[0].State != cri.ContainerRunning
		})
		if err == nil && len(running) != pods {
			err = fmt.Errorf("%d run", len(running))
		}
		return err
	})
	sandboxes, started, err := times(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	if len(started) != pods || started[0].IsZero() {
		t.Fatalf("%d containers, the first started at %v", len(started), started[0])
	}
	began := sandboxes[0]
	t.Logf("after the first sandbox: first pod %v, half %v, all %v", started[0].Sub(began),
		started[pods/2-1].Sub(began), started[pods-1].Sub(began))
	if n := before(sandboxes, started[0]); n > pods/3 {
		t.Errorf("%d of %d sandboxes were there before the first pod ran", n, pods)
	}
	if n := before(sandboxes, started[pods/2-1]); n > pods*5/6 {
		t.Errorf("%d of %d sandboxes were there before half of the pods ran", n, pods)
	}
}

// times returns when sandboxes were created and containers started, in order.
func times(ctx context.Context, client *cri.Client) (sandboxes, started []time.Time, err error) {
	all, err := client.Pods(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range all {
		if p, err = client.Pod(ctx, p.UID); err != nil {
			return nil, nil, err
		}
		for _, s := range p.Sandboxes {
			sandboxes = append(sandboxes, s.CreatedAt)
		}
		for _, c := range p.Containers {
			started = append(started, c.StartedAt)
		}
	}
	slices.SortFunc(sandboxes, time.Time.Compare)
	slices.SortFunc(started, time.Time.Compare)
	return sandboxes, started, nil
}

func before(times []time.Time, limit time.Time) (n int) {
	for _, at := range times {
		if at.Before(limit) {
			n++
		}
	}
	return n
}
