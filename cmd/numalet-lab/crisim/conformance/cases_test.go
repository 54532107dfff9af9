package conformance

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cri"
)

func ready(t *testing.T, s *suite) {
	ctx, cancel := s.context(t)
	defer cancel()
	got, err := s.client.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if got.Name == "" || got.Version == "" {
		t.Errorf("status %+v: want name and version", got)
	}
	full, err := s.client.Runtime().Status(ctx, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range full.GetStatus().GetConditions() {
		if c.GetType() == runtimeapi.RuntimeReady && c.GetStatus() {
			return
		}
	}
	t.Errorf("conditions %v: want it to be ready", full.GetStatus().GetConditions())
}

func sandboxLifecycle(t *testing.T, s *suite) {
	ctx, cancel := s.context(t)
	defer cancel()
	p := s.sandbox(t)
	got := p.read()
	if len(got.Sandboxes) != 1 || !got.Sandboxes[0].Ready || !got.Sandboxes[0].HostNetwork {
		t.Fatalf("after run: %+v, want one ready sandbox in the host's network", got.Sandboxes)
	}
	if got.Namespace != "conformance" || got.Name != p.config.Metadata.Name {
		t.Errorf("pod is %s/%s", got.Namespace, got.Name)
	}
	p.stopSandbox()
	if err := s.client.Runtime().RemovePodSandbox(ctx, p.id); err != nil {
		t.Fatal(err)
	}
	if got := p.read(); len(got.Sandboxes) != 0 {
		t.Errorf("after remove: %+v, want nothing", got.Sandboxes)
	}
}

func containerLifecycle(t *testing.T, s *suite) {
	ctx, cancel := s.context(t)
	defer cancel()
	p := s.sandbox(t)
	id := p.create("c", s.opts.Forever)
	c := p.container("c")
	if c.State != cri.ContainerCreated || c.ID != id || c.SandboxID != p.id ||
		c.From.ImageRef == "" {
		t.Errorf("after create: %+v", c)
	}
	if err := s.client.Runtime().StartContainer(ctx, id); err != nil {
		t.Fatal(err)
	}
	if c = p.container("c"); c.State != cri.ContainerRunning || c.StartedAt.IsZero() {
		t.Errorf("after start: %+v", c)
	}
	p.stop(id, 10)
	c = p.container("c")
	if c.State != cri.ContainerExited || c.Exit.At.Before(c.StartedAt) {
		t.Errorf("after stop: %+v", c)
	}
	if err := s.client.Runtime().RemoveContainer(ctx, id); err != nil {
		t.Fatal(err)
	}
	if _, ok := p.read().Container("c"); ok {
		t.Error("after remove: container is still there")
	}
}

func exitCodes(t *testing.T, s *suite) {
	p := s.sandbox(t)
	p.start("ok", s.opts.Exit(0))
	p.start("bad", s.opts.Exit(3))
	if c := p.until("ok", cri.ContainerExited); c.Exit.Code != 0 || c.Exit.Reason != "Completed" {
		t.Errorf("exit 0 reads as %d %q", c.Exit.Code, c.Exit.Reason)
	}
	if c := p.until("bad", cri.ContainerExited); c.Exit.Code != 3 || c.Exit.Reason != "Error" {
		t.Errorf("exit 3 reads as %d %q", c.Exit.Code, c.Exit.Reason)
	}
}

func stopObeys(t *testing.T, s *suite) {
	p := s.sandbox(t)
	id := p.start("c", s.opts.Forever)
	time.Sleep(s.opts.Settle)
	p.stop(id, 20)
	if c := p.container("c"); c.State != cri.ContainerExited || c.Exit.Code == 137 {
		t.Errorf("after stop: %s with %d, want an exit that is no kill", c.State, c.Exit.Code)
	}
}

func stopKills(t *testing.T, s *suite) {
	p := s.sandbox(t)
	id := p.start("c", s.opts.Stubborn)
	time.Sleep(s.opts.Settle)
	p.stop(id, 1)
	if c := p.container("c"); c.State != cri.ContainerExited || c.Exit.Code != 137 {
		t.Errorf("after stop: %s with %d, want 137", c.State, c.Exit.Code)
	}
}

func stopNow(t *testing.T, s *suite) {
	p := s.sandbox(t)
	id := p.start("c", s.opts.Forever)
	time.Sleep(s.opts.Settle)
	p.stop(id, 0)
	if c := p.container("c"); c.State != cri.ContainerExited || c.Exit.Code != 137 {
		t.Errorf("after stop without grace: %s with %d, want 137", c.State, c.Exit.Code)
	}
}

func idempotent(t *testing.T, s *suite) {
	ctx, cancel := s.context(t)
	defer cancel()
	p, run := s.sandbox(t), s.client.Runtime()
	id := p.start("c", s.opts.Forever)
	for range 2 {
		p.stop(id, 5)
	}
	for range 2 {
		if err := run.RemoveContainer(ctx, id); err != nil {
			t.Errorf("remove container: %v", err)
		}
	}
	for range 2 {
		if err := run.StopPodSandbox(ctx, p.id); err != nil {
			t.Errorf("stop sandbox: %v", err)
		}
	}
	for range 2 {
		if err := run.RemovePodSandbox(ctx, p.id); err != nil {
			t.Errorf("remove sandbox: %v", err)
		}
	}
}

func sandboxKills(t *testing.T, s *suite) {
	ctx, cancel := s.context(t)
	defer cancel()
	p := s.sandbox(t)
	p.start("c", s.opts.Stubborn)
	if err := s.client.Runtime().StopPodSandbox(ctx, p.id); err != nil {
		t.Fatal(err)
	}
	if c := p.until("c", cri.ContainerExited); c.Exit.Code != 137 {
		t.Errorf("container exited with %d, want 137", c.Exit.Code)
	}
}

func namesReserved(t *testing.T, s *suite) {
	ctx, cancel := s.context(t)
	defer cancel()
	p, run := s.sandbox(t), s.client.Runtime()
	if _, err := run.RunPodSandbox(ctx, p.config, ""); err == nil {
		t.Error("the same sandbox ran twice")
	}
	id := p.create("c", s.opts.Forever)
	config := p.containerConfig("c", s.opts.Forever)
	if _, err := run.CreateContainer(ctx, p.id, config, p.config); err == nil {
		t.Error("the same container was created twice")
	}
	if err := run.RemoveContainer(ctx, id); err != nil {
		t.Fatal(err)
	}
	if _, err := run.CreateContainer(ctx, p.id, config, p.config); err != nil {
		t.Errorf("create after remove: %v", err)
	}
	config.Metadata.Attempt = 1
	if _, err := run.CreateContainer(ctx, p.id, config, p.config); err != nil {
		t.Errorf("create the next attempt: %v", err)
	}
}

func startsOnce(t *testing.T, s *suite) {
	ctx, cancel := s.context(t)
	defer cancel()
	p := s.sandbox(t)
	id := p.start("c", s.opts.Forever)
	if err := s.client.Runtime().StartContainer(ctx, id); err == nil {
		t.Error("a running container started again")
	}
	p.stop(id, 0)
	if err := s.client.Runtime().StartContainer(ctx, id); err == nil {
		t.Error("an exited container started again")
	}
}

func stoppedSandbox(t *testing.T, s *suite) {
	ctx, cancel := s.context(t)
	defer cancel()
	p := s.sandbox(t)
	p.stopSandbox()
	config := p.containerConfig("c", s.opts.Forever)
	if _, err := s.client.Runtime().CreateContainer(ctx, p.id, config, p.config); err == nil {
		t.Error("a container was created in a stopped sandbox")
	}
}

func labelsComeBack(t *testing.T, s *suite) {
	ctx, cancel := s.context(t)
	defer cancel()
	p := s.sandbox(t)
	id := p.create("c", s.opts.Forever)
	resp, err := s.client.Runtime().ContainerStatus(ctx, id, false)
	if err != nil {
		t.Fatal(err)
	}
	if got := resp.GetStatus().GetLabels()[cri.LabelContainerName]; got != "c" {
		t.Errorf("container name label is %q", got)
	}
	if c := p.container("c"); c.From.Hash != "deadbeef" || c.Annotations[cri.AnnotationHash] == "" {
		t.Errorf("hash is %q, annotations %v", c.From.Hash, c.Annotations)
	}
	sandbox, err := s.client.Runtime().PodSandboxStatus(ctx, p.id, false)
	if err != nil {
		t.Fatal(err)
	}
	if got := sandbox.GetStatus().GetAnnotations()["example.com/pod"]; got == "" {
		t.Errorf("sandbox annotations are %v", sandbox.GetStatus().GetAnnotations())
	}
}

func filters(t *testing.T, s *suite) {
	ctx, cancel := s.context(t)
	defer cancel()
	a, b := s.sandbox(t), s.sandbox(t)
	running := a.start("running", s.opts.Forever)
	created := a.create("created", s.opts.Forever)
	b.create("other", s.opts.Forever)
	list := func(f *runtimeapi.ContainerFilter) string {
		t.Helper()
		got, err := s.client.Runtime().ListContainers(ctx, f)
		if err != nil {
			t.Fatal(err)
		}
		return ids(got, (*runtimeapi.Container).GetId)
	}
	both := ids([]string{running, created}, func(s string) string { return s })
	byUID := map[string]string{cri.LabelPodUID: a.config.Metadata.Uid}
	if got := list(&runtimeapi.ContainerFilter{LabelSelector: byUID}); got != both {
		t.Errorf("by label: %s, want %s", got, both)
	}
	if got := list(&runtimeapi.ContainerFilter{PodSandboxId: a.id}); got != both {
		t.Errorf("by sandbox: %s, want %s", got, both)
	}
	isRunning := &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}
	got := list(&runtimeapi.ContainerFilter{LabelSelector: byUID, State: isRunning})
	if got != running {
		t.Errorf("by state: %s, want %s", got, running)
	}
	sandboxes, err := s.client.Runtime().ListPodSandbox(ctx,
		&runtimeapi.PodSandboxFilter{LabelSelector: byUID})
	if err != nil {
		t.Fatal(err)
	}
	if got := ids(sandboxes, (*runtimeapi.PodSandbox).GetId); got != a.id {
		t.Errorf("sandboxes by label: %s, want %s", got, a.id)
	}
}

func resources(t *testing.T, s *suite) {
	if s.opts.CPUs == "" {
		t.Skip("no CPU sets in the options")
	}
	ctx, cancel := s.context(t)
	defer cancel()
	p := s.sandbox(t)
	id := p.start("c", s.opts.Forever)
	if c := p.container("c"); c.Applied.CPUs != s.opts.CPUs {
		t.Errorf("cpuset after start is %q, want %q", c.Applied.CPUs, s.opts.CPUs)
	}
	err := s.client.Runtime().UpdateContainerResources(ctx, id, &runtimeapi.ContainerResources{
		Linux: &runtimeapi.LinuxContainerResources{CpusetCpus: s.opts.FewerCPUs},
	})
	if err != nil {
		t.Fatal(err)
	}
	if c := p.container("c"); c.Applied.CPUs != s.opts.FewerCPUs {
		t.Errorf("cpuset after update is %q, want %q", c.Applied.CPUs, s.opts.FewerCPUs)
	}
}

func notFound(t *testing.T, s *suite) {
	ctx, cancel := s.context(t)
	defer cancel()
	run := s.client.Runtime()
	_, err := run.ContainerStatus(ctx, "nosuch", false)
	wantCode(t, "status of no container", err, codes.NotFound)
	_, err = run.PodSandboxStatus(ctx, "nosuch", false)
	wantCode(t, "status of no sandbox", err, codes.NotFound)
	wantCode(t, "start no container", run.StartContainer(ctx, "nosuch"), codes.NotFound)
	wantCode(t, "stop no container", run.StopContainer(ctx, "nosuch", 1), codes.OK)
	wantCode(t, "remove no container", run.RemoveContainer(ctx, "nosuch"), codes.OK)
	wantCode(t, "stop no sandbox", run.StopPodSandbox(ctx, "nosuch"), codes.OK)
	wantCode(t, "remove no sandbox", run.RemovePodSandbox(ctx, "nosuch"), codes.OK)
	if got, err := s.client.Pod(ctx, "nosuch"); err != nil || got.Running() {
		t.Errorf("read no pod: %+v, %v", got, err)
	}
}

func events(t *testing.T, s *suite) {
	ctx, cancel := s.context(t)
	defer cancel()
	if s.opts.NoEvents {
		if err := s.client.Events(ctx, nil, func(cri.Event) {}); !errors.Is(err, cri.ErrNoEvents) {
			t.Errorf("stream ended with %v, want %v", err, cri.ErrNoEvents)
		}
		return
	}
	seen := make(chan cri.Event, 1000)
	ended := make(chan error, 1)
	go func() { ended <- s.client.Events(ctx, nil, func(e cri.Event) { seen <- e }) }()
	defer func() {
		cancel()
		if err := <-ended; err == nil {
			t.Error("the stream ended without a reason")
		}
	}()
	listening(t, s, seen)
	p := s.sandbox(t)
	id := p.start("c", s.opts.Exit(1))
	for _, want := range []cri.EventType{cri.EventCreated, cri.EventStarted, cri.EventStopped} {
		await(ctx, t, seen, func(e cri.Event) bool {
			uid := types.UID(p.config.Metadata.Uid)
			return e.ContainerID == id && e.Type == want && e.PodUID == uid
		})
	}
	if err := s.client.Runtime().RemoveContainer(ctx, id); err != nil {
		t.Fatal(err)
	}
	await(ctx, t, seen, func(e cri.Event) bool {
		return e.ContainerID == id && e.Type == cri.EventDeleted
	})
}

// listening creates pods until an event arrives: runtimes do not tell when the stream has begun.
func listening(t *testing.T, s *suite, seen <-chan cri.Event) {
	t.Helper()
	for deadline := time.Now().Add(s.opts.Wait); time.Now().Before(deadline); {
		s.sandbox(t)
		select {
		case <-seen:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
	t.Fatal("no event arrived")
}

func await(
	ctx context.Context, t *testing.T, seen <-chan cri.Event, want func(cri.Event) bool,
) {
	t.Helper()
	for {
		select {
		case e := <-seen:
			if want(e) {
				return
			}
		case <-ctx.Done():
			t.Fatal("an expected event did not arrive")
		}
	}
}

func absentImage(t *testing.T, s *suite) {
	ctx, cancel := s.context(t)
	defer cancel()
	resp, err := s.client.Images().ImageStatus(ctx,
		&runtimeapi.ImageSpec{Image: "localhost/no/such/image:never"}, false)
	if err != nil || resp.GetImage() != nil {
		t.Errorf("absent image: %v, %v", resp.GetImage(), err)
	}
}

// startGivenUp: a container of which nothing is known but that its start was given up counts as not
// started. It is removed and made anew, or it cannot be removed and the next attempt runs: containerd
// keeps one whose task was being made, until it is started again itself.
func startGivenUp(t *testing.T, s *suite) {
	p := s.sandbox(t)
	p.stuck = true
	for after := time.Millisecond; after < 200*time.Millisecond; after *= 2 {
		name := fmt.Sprint("c", after.Milliseconds())
		id := p.create(name, s.opts.Forever)
		if p.startBriefly(id, after) == nil {
			continue
		}
		again := p.containerConfig(name, s.opts.Forever)
		var runs bool
		if again.Metadata.Attempt, runs = p.afterStart(name); runs {
			continue
		}
		id, err := p.client.Runtime().CreateContainer(t.Context(), p.id, again, p.config)
		if err == nil {
			err = p.client.Runtime().StartContainer(t.Context(), id)
		}
		if err != nil {
			t.Errorf("given up after %v, then made anew: %v", after, err)
		}
	}
}

// startBriefly starts a container over a connection of its own, which it soon closes.
func (p *pod) startBriefly(id string, after time.Duration) error {
	p.t.Helper()
	client, err := cri.Connect(p.t.Context(), cri.Config{RuntimeEndpoint: p.opts.Endpoint})
	if err != nil {
		p.t.Fatal(err)
	}
	timer := time.AfterFunc(after, func() { _ = client.Close() })
	err = client.Runtime().StartContainer(p.t.Context(), id)
	if timer.Stop() {
		_ = client.Close()
	}
	return err
}

// afterStart returns the next attempt of a container whose start was given up, or that it runs. The
// attempt is the same if the container could be removed.
func (p *pod) afterStart(name string) (attempt uint32, runs bool) {
	p.t.Helper()
	for deadline := time.Now().Add(p.opts.Wait); ; time.Sleep(20 * time.Millisecond) {
		c, has := p.read().Container(name)
		if has && c.State == cri.ContainerRunning {
			return 0, true
		}
		if has && c.Unstarted() {
			err := p.client.Runtime().RemoveContainer(p.t.Context(), c.ID)
			if err == nil {
				return c.Attempt, false
			}
			if c.State == cri.ContainerExited {
				p.t.Logf("%s is kept: %v", name, err)
				return c.Attempt + 1, false
			}
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s is %+v", name, c)
		}
	}
}
