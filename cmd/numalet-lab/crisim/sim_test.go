package crisim_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/cmd/numalet-lab/control"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim/simtest"
	"github.com/numalet/numalet/cri"
)

// rig holds a simulated runtime, a client of it, and a client of its control socket.
type rig struct {
	t       *testing.T
	ctx     context.Context
	server  *crisim.Server
	control *control.Client
	run     internalapi.RuntimeService
	images  internalapi.ImageManagerService
}

func newRig(t *testing.T, cfg crisim.Config) *rig {
	t.Helper()
	cfg.Control = simtest.Socket(t)
	cfg.Images = append(cfg.Images, "sim.local/run")
	server := simtest.Start(t, cfg)
	client := simtest.Connect(t, server)
	return &rig{
		t: t, ctx: klog.NewContext(t.Context(), klog.New(nil)), server: server,
		control: control.NewClient(cfg.Control), run: client.Runtime(), images: client.Images(),
	}
}

func sandboxConfig(name string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-" +
			name},
		Labels: map[string]string{cri.LabelPodUID: "uid-" + name},
	}
}

func containerConfig(name string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name},
		Image:    &runtimeapi.ImageSpec{Image: "sim.local/run"},
		Envs:     []*runtimeapi.KeyValue{{Key: "NAME", Value: []byte(name)}},
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{CpusetCpus: "0-1", CpuShares: 512},
		},
	}
}

// start runs a pod with one container "c".
func (r *rig) start(cfg *runtimeapi.PodSandboxConfig, ctr *runtimeapi.ContainerConfig) (
	sandbox, container string,
) {
	r.t.Helper()
	sandbox, err := r.run.RunPodSandbox(r.ctx, cfg, "")
	if err != nil {
		r.t.Fatal(err)
	}
	container, err = r.run.CreateContainer(r.ctx, sandbox, ctr, cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.run.StartContainer(r.ctx, container); err != nil {
		r.t.Fatal(err)
	}
	return sandbox, container
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// fields are the fields of a request to the control API.
type fields = map[string]any

func (r *rig) order(route string, order any) error { return r.control.Post(r.ctx, route, order) }

func (r *rig) state() crisim.State {
	r.t.Helper()
	var state crisim.State
	r.must(r.control.Get(r.ctx, "/state", &state))
	return state
}

func TestJournalOrdersCalls(t *testing.T) {
	r := newRig(t, crisim.Config{})
	_, id := r.start(sandboxConfig("p"), containerConfig("c"))
	r.must(r.run.StopContainer(r.ctx, id, 5))
	var calls, rest []crisim.Call
	r.must(r.control.Get(r.ctx, "/journal", &calls))
	var methods []string
	for i, c := range calls {
		methods = append(methods, c.Method)
		if c.End <= c.Begin || (i > 0 && c.Begin < calls[i-1].End) {
			t.Errorf("call %d is out of order: %+v", i, c)
		}
		if c.Subject.Pod != "p" || c.Subject.ID == "" {
			t.Errorf("call %d is about %+v", i, c.Subject)
		}
	}
	want := []string{"RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer"}
	if !slices.Equal(methods, want) {
		t.Errorf("journal is %v, want %v", methods, want)
	}
	if calls[1].CPUs != "0-1" || calls[1].Subject.ID != id || calls[1].Subject.Container != "c" {
		t.Errorf("creation reads %+v", calls[1])
	}
	r.must(r.control.Get(r.ctx, fmt.Sprintf("/journal?since=%d", calls[2].Begin), &rest))
	if len(rest) != 1 || rest[0].Method != "StopContainer" {
		t.Errorf("journal since the start is %+v", rest)
	}
}

func TestFaults(t *testing.T) {
	r := newRig(t, crisim.Config{})
	r.must(r.order("/faults", crisim.Fault{
		Method: "RunPodSandbox", Pod: "p", Error: "no space left", Code: "ResourceExhausted",
		Count: 2,
	}))
	for i := range 3 {
		_, err := r.run.RunPodSandbox(r.ctx, sandboxConfig("p"), "")
		if failed := status.Code(err) == codes.ResourceExhausted; failed != (i < 2) {
			t.Errorf("attempt %d: %v", i, err)
		}
		if _, err := r.run.RunPodSandbox(r.ctx, sandboxConfig(fmt.Sprint("q", i)), ""); err != nil {
			t.Errorf("another pod: %v", err)
		}
	}
}

func TestLostAnswerTookEffect(t *testing.T) {
	r := newRig(t, crisim.Config{})
	r.must(r.order("/faults", crisim.Fault{
		Method: "RunPodSandbox", Error: "connection reset", Code: "unavailable", After: true,
	}))
	_, err := r.run.RunPodSandbox(r.ctx, sandboxConfig("p"), "")
	if status.Code(err) != codes.Unavailable {
		t.Errorf("error is %v", err)
	}
	if state := r.state(); len(state.Sandboxes) != 1 {
		t.Errorf("sandboxes are %+v, want the one whose answer was lost", state.Sandboxes)
	}
	calls := r.server.Journal(0)
	if len(calls) != 1 || calls[0].Subject.ID == "" || calls[0].Error == "" {
		t.Errorf("journal is %+v", calls)
	}
}

func TestHang(t *testing.T) {
	r := newRig(t, crisim.Config{})
	sandbox, _ := r.start(sandboxConfig("p"), containerConfig("c"))
	create := func(ctx context.Context) error {
		_, err := r.run.CreateContainer(ctx, sandbox, containerConfig("d"), sandboxConfig("p"))
		return err
	}
	r.must(r.order("/faults", crisim.Fault{Method: "CreateContainer", Hang: true}))
	short, cancel := context.WithTimeout(r.ctx, 20*time.Millisecond)
	defer cancel()
	if err := create(short); status.Code(err) != codes.DeadlineExceeded || len(r.state().Containers) != 1 {
		t.Errorf("hung call: %v, containers %+v", err, r.state().Containers)
	}
	done := make(chan error, 1)
	go func() { done <- create(r.ctx) }()
	r.must(r.control.Delete(r.ctx, "/faults"))
	// The call succeeds whether the faults were cleared before or after it began.
	r.must(<-done)
}

func TestBadControlRequests(t *testing.T) {
	r := newRig(t, crisim.Config{})
	for want, err := range map[string]error{
		`method "Start" is not a CRI v1 call`: r.order("/faults",
			crisim.Fault{Method: "Start"}),
		`code "Bad" is not a gRPC code`: r.order("/faults", crisim.Fault{Code: "Bad"}),
		`event mode "off": use on`:      r.order("/events", fields{"mode": "off"}),
		`no running container`:          r.order("/exit", fields{"container": "p/c"}),
		`no ready sandbox`:              r.order("/kill-sandbox", fields{"sandbox": "default/p"}),
		`missing image "["`:             r.order("/missing", fields{"images": []string{"["}}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q in it", err, want)
		}
	}
}

func TestNotReady(t *testing.T) {
	r := newRig(t, crisim.Config{})
	r.must(r.order("/ready", crisim.Ready{Runtime: true, Message: "no CNI config"}))
	if _, err := r.run.RunPodSandbox(r.ctx, sandboxConfig("p"), ""); err == nil {
		t.Error("a pod got a network that is not ready")
	}
	host := sandboxConfig("host")
	host.Linux = &runtimeapi.LinuxPodSandboxConfig{
		SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
		},
	}
	if _, err := r.run.RunPodSandbox(r.ctx, host, ""); err != nil {
		t.Errorf("pod in the host's network: %v", err)
	}
}

func TestAddresses(t *testing.T) {
	r := newRig(t, crisim.Config{})
	seen := map[string]bool{}
	for i := range 300 {
		id, err := r.run.RunPodSandbox(r.ctx, sandboxConfig(fmt.Sprint("p", i)), "")
		r.must(err)
		if i%3 == 0 {
			r.must(r.run.StopPodSandbox(r.ctx, id))
		}
	}
	for _, sb := range r.state().Sandboxes {
		if sb.Ready != (sb.IP != "") || (sb.Ready && seen[sb.IP]) {
			t.Errorf("sandbox %s: ready %t with address %q", sb.Pod, sb.Ready, sb.IP)
		}
		seen[sb.IP] = true
	}
}

func TestImages(t *testing.T) {
	r := newRig(t, crisim.Config{
		Missing: []string{"private.example/*"}, ImageUsers: map[string]string{"app": "1000"},
	})
	spec := func(name string) *runtimeapi.ImageSpec { return &runtimeapi.ImageSpec{Image: name} }
	sandbox, err := r.run.RunPodSandbox(r.ctx, sandboxConfig("p"), "")
	r.must(err)
	ctr := containerConfig("c")
	ctr.Image = spec("app")
	if _, err := r.run.CreateContainer(r.ctx, sandbox, ctr, sandboxConfig("p")); err == nil {
		t.Error("a container was created from an image that was not pulled")
	}
	ref, err := r.images.PullImage(r.ctx, spec("app"), nil, nil)
	r.must(err)
	resp, err := r.images.ImageStatus(r.ctx, spec("docker.io/library/app:latest"), false)
	r.must(err)
	img := resp.GetImage()
	if img.GetId() != ref || img.GetUid().GetValue() != 1000 || len(img.GetRepoDigests()) != 1 {
		t.Fatalf("image is %v, want id %s", img, ref)
	}
	for _, name := range []string{ref, img.GetRepoDigests()[0]} {
		ctr.Image, ctr.Metadata.Name = spec(name), "by-"+name
		if _, err := r.run.CreateContainer(r.ctx, sandbox, ctr, sandboxConfig("p")); err != nil {
			t.Errorf("create by %s: %v", name, err)
		}
	}
	for _, name := range []string{"private.example/x", "sim.local/missing:1"} {
		_, err := r.images.PullImage(r.ctx, spec(name), nil, nil)
		if status.Code(err) != codes.NotFound {
			t.Errorf("pull %s: %v", name, err)
		}
	}
	r.must(r.images.RemoveImage(r.ctx, spec(ref)))
	if resp, err = r.images.ImageStatus(r.ctx, spec("app"), false); err != nil ||
		resp.Image != nil {
		t.Errorf("after remove: %v, %v", resp, err)
	}
}

func TestLastWords(t *testing.T) {
	r, dir := newRig(t, crisim.Config{}), t.TempDir()
	message := filepath.Join(dir, "message")
	r.must(os.WriteFile(message, nil, 0o600))
	r.must(os.Mkdir(filepath.Join(dir, "c"), 0o700))
	pod := sandboxConfig("p")
	pod.LogDirectory = dir
	pod.Annotations = map[string]string{
		crisim.AnnotationPrefix + "c": "exit=1 message=broken term=ignore",
	}
	ctr := containerConfig("c")
	ctr.LogPath = "c/0.log"
	const inside = "/dev/termination-log"
	ctr.Annotations = map[string]string{cri.AnnotationTerminationMessagePath: inside}
	ctr.Mounts = []*runtimeapi.Mount{{ContainerPath: inside, HostPath: message}}
	_, id := r.start(pod, ctr)
	r.must(r.run.StopContainer(r.ctx, id, 30)) // is ignored; StopContainer waits for the exit
	log, err := os.ReadFile(filepath.Join(dir, "c/0.log"))
	r.must(err)
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], " stdout F started cpus=0-1") ||
		!strings.Contains(lines[1], " stdout F exited code=1") {
		t.Errorf("log is %q", log)
	}
	if got, err := os.ReadFile(message); err != nil || string(got) != "broken" {
		t.Errorf("termination message is %q, %v", got, err)
	}
}

func TestDelays(t *testing.T) {
	if _, err := crisim.New(crisim.Config{Delays: map[string]time.Duration{"Nope": 1}}); err == nil {
		t.Error("a delay of an unknown method was accepted")
	}
	const delay = 30 * time.Millisecond
	r := newRig(t, crisim.Config{Delays: map[string]time.Duration{"RunPodSandbox": delay}})
	start := time.Now()
	_, err := r.run.RunPodSandbox(r.ctx, sandboxConfig("p"), "")
	r.must(err)
	if took := time.Since(start); took < delay {
		t.Errorf("took %v, want at least %v", took, delay)
	}
	r.must(r.order("/faults", crisim.Fault{
		Method: "StopPodSandbox", Delay: metav1.Duration{Duration: delay},
	}))
	start = time.Now()
	r.must(r.run.StopPodSandbox(r.ctx, "x"))
	if took := time.Since(start); took < delay {
		t.Errorf("took %v, want at least %v", took, delay)
	}
}

func TestSockets(t *testing.T) {
	path := simtest.Socket(t)
	cfg := crisim.Config{Listen: "unix://" + path}
	simtest.Start(t, cfg)
	if _, err := crisim.New(cfg); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second server on one socket: %v", err)
	}
	stale := simtest.Socket(t)
	r := newRig(t, crisim.Config{Listen: "unix://" + stale})
	if r.server.Endpoint() != "unix://"+stale {
		t.Errorf("endpoint is %s", r.server.Endpoint())
	}
	if _, err := crisim.New(crisim.Config{}); err == nil {
		t.Error("a server without a socket path")
	}
}

// Commands run only in running containers.
func TestExecSync(t *testing.T) {
	r := newRig(t, crisim.Config{})
	_, id := r.start(sandboxConfig("p"), containerConfig("c"))
	for command, want := range map[string]string{
		"echo a b; exit 0": "a b\n", "echo a >&2; true; echo b": "b\n", "sleep 0.01": "",
	} {
		out, _, err := r.run.ExecSync(r.ctx, id, []string{"sh", "-c", command}, time.Minute)
		if err != nil || string(out) != want {
			t.Errorf("%s: %v %q", command, err, out)
		}
	}
	for command, want := range map[string]string{
		"echo a; exit 7": "exited with 7", "nvidia-smi": "exited with 127", "false": "exited with 1",
	} {
		_, _, err := r.run.ExecSync(r.ctx, id, []string{"sh", "-c", command}, time.Minute)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", command, err)
		}
	}
	if err := r.run.StopContainer(r.ctx, id, 0); err != nil {
		t.Fatal(err)
	}
	_, _, err := r.run.ExecSync(r.ctx, id, []string{"true"}, time.Minute)
	if err == nil || !strings.Contains(err.Error(), "container is in CONTAINER_EXITED state") {
		t.Errorf("in a container that has ended: %v", err)
	}
}
