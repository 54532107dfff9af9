// Package conformance states what an agent relies on in a CRI runtime. Every runtime that we
// support, simulated or real, passes it.
package conformance

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/cri"
)

// Options describes the runtime at hand and what to run on it.
type Options struct {
	// Endpoint is the runtime's.
	Endpoint string
	// Image is pulled first if the runtime does not have it.
	Image string
	// Forever runs until SIGTERM and obeys it; Stubborn ignores SIGTERM. Exit ends at once with the
	// given code. They are commands or, with AsArguments, arguments to the image's own command.
	Forever, Stubborn []string
	Exit              func(code int) []string
	AsArguments       bool
	// Settle is how long a program needs from its start until it handles signals.
	Settle time.Duration
	// CPUs and FewerCPUs are CPU sets of this machine; if empty, tests of CPU sets are skipped.
	CPUs, FewerCPUs string
	// NoEvents is set if the runtime has no event stream.
	NoEvents bool
	// CgroupParent and LogRoot are handed to the runtime; empty: its default, and no logs.
	CgroupParent, LogRoot string
	// Wait bounds each wait; zero is 30 s.
	Wait time.Duration
}

// Run checks the runtime behind client. It creates pods in the namespace "conformance" and removes
// them.
func Run(t *testing.T, client *cri.Client, opts Options) {
	opts.Wait = cmp.Or(opts.Wait, 30*time.Second)
	s := &suite{client: client, opts: opts, run: time.Now().UnixNano()}
	s.image(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *suite)
	}{
		{"runtime is ready and tells its name", ready},
		{"sandbox lifecycle", sandboxLifecycle},
		{"container lifecycle", containerLifecycle},
		{"statistics", statistics},
		{"exit codes", exitCodes},
		{"a stopped container obeys SIGTERM", stopObeys},
		{"a stubborn container is killed after its grace", stopKills},
		{"no grace is a kill", stopNow},
		{"stop and remove are idempotent", idempotent},
		{"stopping the sandbox kills its containers", sandboxKills},
		{"names are reserved", namesReserved},
		{"a container starts once", startsOnce},
		{"a start whose caller goes away is no start", startGivenUp},
		{"a stopped sandbox takes no containers", stoppedSandbox},
		{"labels and annotations come back", labelsComeBack},
		{"lists filter by label, state and sandbox", filters},
		{"resources are reported and updated", resources},
		{"devices, mounts and CDI devices that cannot be had", wrongDevices},
		{"a volume of an image that is not there", lacksImage},
		{"what is not there is NotFound", notFound},
		{"events arrive", events},
		{"an absent image has no status", absentImage},
		{"what contradicts itself is refused", refused},
		{"a log that was moved away is made anew", reopensLog},
		{"a verbose status has the order", inspects},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, s) })
	}
}

type suite struct {
	client *cri.Client
	opts   Options
	run    int64 // makes names unique between runs

	mu   sync.Mutex
	next int
	ref  string // resolved image
}

// pod is a pod of one test and is removed with it.
type pod struct {
	*suite
	t      *testing.T
	config *runtimeapi.PodSandboxConfig
	id     string
	// stuck is set if the runtime may fail to remove a container.
	stuck bool
}

func (s *suite) image(t *testing.T) {
	ctx, cancel := s.context(t)
	defer cancel()
	spec := &runtimeapi.ImageSpec{Image: s.opts.Image}
	resp, err := s.client.Images().ImageStatus(ctx, spec, false)
	if err != nil {
		t.Fatalf("status of image %s: %v", s.opts.Image, err)
	}
	s.ref = resp.GetImage().GetId()
	if s.ref == "" {
		if s.ref, err = s.client.Images().PullImage(ctx, spec, nil, nil); err != nil {
			t.Fatalf("pull image %s: %v", s.opts.Image, err)
		}
	}
}

// context returns a context that logs nothing: many calls are meant to fail.
func (s *suite) context(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(klog.NewContext(t.Context(), klog.New(nil)), s.opts.Wait)
}

func (s *suite) number() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	return s.next
}

// sandbox runs a pod in the host's network, which needs no network plugin.
func (s *suite) sandbox(t *testing.T) *pod {
	t.Helper()
	p := s.unmade(t)
	p.id = p.make()
	return p
}

func (s *suite) unmade(t *testing.T) *pod {
	n := s.number()
	name := fmt.Sprintf("pod-%d", n)
	uid := fmt.Sprintf("%d-%d", s.run, n)
	cfg := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "conformance", Uid: uid},
		Labels: map[string]string{
			cri.LabelPodName: name, cri.LabelPodNamespace: "conformance", cri.LabelPodUID: uid,
		},
		Annotations: map[string]string{"example.com/pod": name},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: s.opts.CgroupParent,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{
					Network: runtimeapi.NamespaceMode_NODE,
					Pid:     runtimeapi.NamespaceMode_CONTAINER,
				},
			},
		},
	}
	if s.opts.LogRoot != "" {
		cfg.LogDirectory = s.opts.LogRoot + "/" + uid
	}
	return &pod{suite: s, t: t, config: cfg}
}

func (p *pod) make() string {
	p.t.Helper()
	ctx, cancel := p.context(p.t)
	defer cancel()
	id, err := p.client.Runtime().RunPodSandbox(ctx, p.config, "")
	if err != nil {
		p.t.Fatalf("run sandbox: %v", err)
	}
	p.t.Cleanup(func() { p.remove(id) })
	return id
}

func (p *pod) remove(id string) {
	// The test's own context has already ended.
	ctx, cancel := context.WithTimeout(context.Background(), p.opts.Wait)
	defer cancel()
	if err := p.client.Runtime().StopPodSandbox(ctx, id); err != nil {
		p.t.Errorf("stop sandbox: %v", err)
	}
	if err := p.client.Runtime().RemovePodSandbox(ctx, id); err != nil && !p.stuck {
		p.t.Errorf("remove sandbox: %v", err)
	}
}

func (p *pod) containerConfig(name string, command []string) *runtimeapi.ContainerConfig {
	labels := map[string]string{cri.LabelContainerName: name}
	for k, v := range p.config.Labels {
		labels[k] = v
	}
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name},
		Image:    &runtimeapi.ImageSpec{Image: p.ref, UserSpecifiedImage: p.opts.Image},
		Labels:   labels,
		Annotations: map[string]string{
			cri.AnnotationHash: "deadbeef", cri.AnnotationRestartCount: "0",
		},
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{CpusetCpus: p.opts.CPUs},
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: p.config.Linux.SecurityContext.NamespaceOptions,
			},
		},
	}
	if p.opts.AsArguments {
		config.Args = command
	} else {
		config.Command = command
	}
	return config
}

func (p *pod) create(name string, command []string) string {
	p.t.Helper()
	ctx, cancel := p.context(p.t)
	defer cancel()
	id, err := p.client.Runtime().CreateContainer(
		ctx, p.id, p.containerConfig(name, command), p.config)
	if err != nil {
		p.t.Fatalf("create container %s: %v", name, err)
	}
	return id
}

func (p *pod) start(name string, command []string) string {
	p.t.Helper()
	ctx, cancel := p.context(p.t)
	defer cancel()
	id := p.create(name, command)
	if err := p.client.Runtime().StartContainer(ctx, id); err != nil {
		p.t.Fatalf("start container %s: %v", name, err)
	}
	return id
}

func (p *pod) stop(id string, grace int64) {
	p.t.Helper()
	ctx, cancel := p.context(p.t)
	defer cancel()
	if err := p.client.Runtime().StopContainer(ctx, id, grace); err != nil {
		p.t.Fatalf("stop container: %v", err)
	}
}

// read returns the pod as the agent reads it.
func (p *pod) read() cri.Pod {
	p.t.Helper()
	ctx, cancel := p.context(p.t)
	defer cancel()
	got, err := p.client.Pod(ctx, types.UID(p.config.Metadata.Uid))
	if err != nil {
		p.t.Fatalf("read pod: %v", err)
	}
	return got
}

func (p *pod) container(name string) cri.Container {
	p.t.Helper()
	c, ok := p.read().Container(name)
	if !ok {
		p.t.Fatalf("container %s is not in the pod", name)
	}
	return c
}

// until reads the container until it has the wanted state.
func (p *pod) until(name string, want cri.ContainerState) cri.Container {
	p.t.Helper()
	deadline := time.Now().Add(p.opts.Wait)
	for {
		c := p.container(name)
		if c.State == want {
			return c
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("container %s is %s, want %s", name, c.State, want)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// stopSandbox stops the sandbox and waits until the runtime's list and status show it. containerd
// answers before its list has seen the exit, and accepts containers until then.
func (p *pod) stopSandbox() {
	p.t.Helper()
	ctx, cancel := p.context(p.t)
	defer cancel()
	run := p.client.Runtime()
	if err := run.StopPodSandbox(ctx, p.id); err != nil {
		p.t.Fatal(err)
	}
	for {
		listed, err := run.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{Id: p.id})
		if err != nil {
			p.t.Fatalf("wait until the sandbox is listed as not ready: %v", err)
		}
		got := p.read().Sandboxes
		if len(listed) != 1 || len(got) != 1 {
			p.t.Fatalf("after stop: listed %v, read %+v, want one sandbox", listed, got)
		}
		if listed[0].GetState() == runtimeapi.PodSandboxState_SANDBOX_NOTREADY && !got[0].Ready {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%s: code %s (%v), want %s", what, got, err, want)
	}
}

func ids[T any](list []T, id func(T) string) string {
	var out []string
	for _, v := range list {
		out = append(out, id(v))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}
