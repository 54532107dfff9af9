package cri_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"k8s.io/component-base/metrics"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim/simtest"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/metric/metrictest"
)

func TestConnectSaysWhatToDo(t *testing.T) {
	served := simtest.Start(t, crisim.Config{})
	for _, c := range []struct{ name, endpoint, images, want string }{
		{"nothing given", "", "", "set containerRuntimeEndpoint"},
		{"nobody there", "unix:///nonexistent/x.sock", "", "is the runtime running"},
		{"no CRI v1", "unix://" + otherServer(t), "", "does not serve CRI v1"},
		{"not a unix socket", "tcp://127.0.0.1:1", "", "is it a URL such as unix://"},
		{"no images", served.Endpoint(), "unix:///nonexistent/i.sock",
			"image service unix:///nonex"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := cri.Connect(t.Context(), cri.Config{
				RuntimeEndpoint: c.endpoint, ImageEndpoint: c.images,
			})
			if err == nil || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), c.images) {
				t.Errorf("error is %v, want %q in it", err, c.want)
			}
		})
	}
}

// otherServer runs a gRPC server without services.
func otherServer(t *testing.T) string {
	t.Helper()
	path := simtest.Socket(t)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server, ended := grpc.NewServer(), make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return path
}

func TestCgroupDriver(t *testing.T) {
	for _, driver := range []string{"systemd", "cgroupfs"} {
		client := simtest.Connect(t, simtest.Start(t, crisim.Config{CgroupDriver: driver}))
		if got, err := client.CgroupDriver(t.Context()); err != nil || got != driver {
			t.Errorf("driver is %q, %v, want %q", got, err, driver)
		}
	}
	registry := metrics.NewKubeRegistry()
	client, err := cri.Connect(t.Context(), cri.Config{Registry: registry,
		RuntimeEndpoint: simtest.Start(t, crisim.Config{CgroupDriver: "none"}).Endpoint()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if _, err := client.CgroupDriver(t.Context()); !errors.Is(err, cri.ErrNoRuntimeConfig) {
		t.Errorf("error is %v, want %v", err, cri.ErrNoRuntimeConfig)
	}
	const losing = "kubelet_cri_losing_support"
	if got := metrictest.Values(t, registry, losing); got["1.38.0"] != 1 {
		t.Errorf("%s is %v", losing, got)
	}
}

func TestStatus(t *testing.T) {
	server := simtest.Start(t, crisim.Config{})
	client := simtest.Connect(t, server)
	server.SetReady(crisim.Ready{Network: true, Message: "starting"})
	got, err := client.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.Ready.OK || got.Ready.Message != "starting" || !got.Network.OK ||
		len(got.Handlers) != 1 {
		t.Errorf("status is %+v", got)
	}
}

// The runtime says where it looks for CDI specs; of one that does not, CDI's default directories count.
func TestCDIDirs(t *testing.T) {
	want := []string{"/one", "/two"}
	client := simtest.Connect(t, simtest.Start(t, crisim.Config{CDIDirs: want}))
	if got, err := client.CDIDirs(t.Context()); err != nil || !slices.Equal(got, want) {
		t.Errorf("directories are %v, %v, want %v", got, err, want)
	}
	for _, config := range []string{"", "{}", "[", `{"cdiSpecDirs":[]}`, `{"cdiSpecDirs":"x"}`} {
		if got := cri.ParseCDIDirs(config); !slices.Equal(got, []string{"/etc/cdi", "/var/run/cdi"}) {
			t.Errorf("%s: directories are %v", config, got)
		}
	}
}

// sandboxOf returns the configuration of a pod's sandbox.
func sandboxOf(uid string) *runtimeapi.PodSandboxConfig {
	cfg := &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: "pod", Namespace: "ns", Uid: uid},
		Labels:      map[string]string{},
		Annotations: map[string]string{},
	}
	if uid != "foreign" {
		cfg.Labels = map[string]string{
			cri.LabelPodUID: uid, cri.LabelPodName: "pod", cri.LabelPodNamespace: "ns",
		}
	}
	return cfg
}

// runPod runs a pod with the named containers, each with its own script.
func runPod(t *testing.T, client *cri.Client, uid string, scripts map[string]string) string {
	t.Helper()
	cfg := sandboxOf(uid)
	for name, script := range scripts {
		cfg.Annotations[crisim.AnnotationPrefix+name] = script
	}
	id, err := client.Runtime().RunPodSandbox(t.Context(), cfg, "")
	if err != nil {
		t.Fatal(err)
	}
	for name := range scripts {
		start(t, client, id, name, cfg)
	}
	return id
}

// start runs a container in a sandbox and returns its id.
func start(t *testing.T, client *cri.Client, sandbox, name string,
	cfg *runtimeapi.PodSandboxConfig) string {
	t.Helper()
	ctr, err := client.Runtime().CreateContainer(t.Context(), sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: 2},
		Image:    &runtimeapi.ImageSpec{Image: "app", UserSpecifiedImage: "app:1"},
		Labels:   cfg.Labels,
		LogPath:  name + "/2.log",
		Linux: &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{
			CpusetCpus: "2-3", CpusetMems: "1",
		}},
	}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Runtime().StartContainer(t.Context(), ctr); err != nil {
		t.Fatal(err)
	}
	return ctr
}

func TestListAndRead(t *testing.T) {
	server := simtest.Start(t, crisim.Config{Images: []string{"app"}})
	client := simtest.Connect(t, server)
	runPod(t, client, "b", map[string]string{"run": "", "done": "exit=4"})
	runPod(t, client, "a", nil)
	runPod(t, client, "foreign", map[string]string{"run": ""})
	waitExit(t, server)

	pods, err := client.Pods(t.Context())
	if err != nil || len(pods) != 2 || pods[0].UID != "a" || pods[1].UID != "b" {
		t.Fatalf("pods are %+v, %v: want a and b, not the foreign one", pods, err)
	}
	if c, _ := pods[1].Container("done"); c.State != cri.ContainerExited || c.Attempt != 2 {
		t.Errorf("listed container is %+v", c)
	}
	calls := server.State().Calls
	if calls["ContainerStatus"]+calls["PodSandboxStatus"] != 0 || calls["ListContainers"] != 1 {
		t.Errorf("a listing made the calls %v", calls)
	}

	pod, err := client.Pod(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	run, _ := pod.Container("run")
	if run.Applied.CPUs != "2-3" || run.Applied.Mems != "1" ||
		run.From.Image != "app:1" || run.SandboxID == "" {
		t.Errorf("running container is %+v", run)
	}
	if done, _ := pod.Container("done"); done.Exit.Code != 4 || done.Exit.At.IsZero() {
		t.Errorf("exited container is %+v", done)
	}
	if len(pod.Sandboxes) != 1 || len(pod.Sandboxes[0].IPs) != 1 || pod.Sandboxes[0].HostNetwork {
		t.Errorf("sandboxes are %+v", pod.Sandboxes)
	}

	again, err := client.Refresh(t.Context(), pod)
	if err != nil || len(again.Containers) != 2 || again.Namespace != "ns" || again.Name != "pod" {
		t.Fatalf("refreshed pod is %+v, %v", again, err)
	}
	calls = server.State().Calls
	if n := calls["ContainerStatus"]; n != 3 {
		t.Errorf("%d status calls for two containers, then one that can have changed", n)
	}
	if n := calls["PodSandboxStatus"]; n != 1 {
		t.Errorf("%d status calls for a sandbox that stayed ready, want 1", n)
	}
	if err := server.KillSandbox("ns/pod"); err != nil {
		t.Fatal(err)
	}
	again, err = client.Refresh(t.Context(), again)
	if err != nil || len(again.Sandboxes) != 1 || again.Sandboxes[0].Ready {
		t.Errorf("refreshed pod is %+v, %v, want a sandbox that is not ready", again, err)
	}
}

func waitExit(t *testing.T, server *crisim.Server) {
	t.Helper()
	for ; t.Context().Err() == nil; runtime.Gosched() {
		if c, ok := server.State().Container("pod", "done"); ok && !c.Running() {
			return
		}
	}
}

// A container that is removed between the list and the status is left out; it is no error.
func TestRemovedWhileReading(t *testing.T) {
	server := simtest.Start(t, crisim.Config{Images: []string{"app"}})
	client := simtest.Connect(t, server)
	runPod(t, client, "a", map[string]string{"gone": ""})
	for _, method := range []string{"ContainerStatus", "PodSandboxStatus"} {
		err := server.SetFault(crisim.Fault{Method: method, Error: "not found", Code: "NotFound",
			Count: 1})
		if err != nil {
			t.Fatal(err)
		}
	}
	pod, err := client.Pod(t.Context(), "a")
	if err != nil || len(pod.Containers)+len(pod.Sandboxes) != 0 {
		t.Errorf("pod is %+v, %v, want an empty one", pod, err)
	}
	err = server.SetFault(crisim.Fault{Method: "ContainerStatus", Error: "broken", Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = client.Pod(t.Context(), "a"); err == nil ||
		!strings.Contains(err.Error(), "pod a") {
		t.Errorf("error is %v, want the pod in it", err)
	}
}

func TestEventsEnd(t *testing.T) {
	server := simtest.Start(t, crisim.Config{})
	client := simtest.Connect(t, server)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- client.Events(ctx, nil, func(cri.Event) {}) }()
	for server.State().Calls["GetContainerEvents"] == 0 && t.Context().Err() == nil {
		runtime.Gosched()
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("the stream ended without a reason")
	}
	if err := server.SetEvents(crisim.EventsUnimplemented); err != nil {
		t.Fatal(err)
	}
	err := client.Events(t.Context(), nil, func(cri.Event) {})
	if !errors.Is(err, cri.ErrNoEvents) {
		t.Errorf("error is %v, want %v", err, cri.ErrNoEvents)
	}
}
