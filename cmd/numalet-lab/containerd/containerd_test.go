package containerd_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
	"github.com/numalet/numalet/cmd/numalet-lab/containerd/workload"
	"github.com/numalet/numalet/test/containerd/rig"
	"github.com/numalet/numalet/test/scratch"
)

// pod is a sandbox that a test creates through the CRI, in a cgroup of its own.
type pod struct {
	t       *testing.T
	runtime runtimeapi.RuntimeServiceClient
	images  runtimeapi.ImageServiceClient
	config  *runtimeapi.PodSandboxConfig
	id      string
	started uint32
}

func connect(t *testing.T, d *containerd.Daemon) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(d.Endpoint(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func newPod(t *testing.T, d *containerd.Daemon, name string) *pod {
	t.Helper()
	conn := connect(t, d)
	p := &pod{t: t, runtime: runtimeapi.NewRuntimeServiceClient(conn),
		images: runtimeapi.NewImageServiceClient(conn)}
	namespaces := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}
	p.config = &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name},
		Hostname:     name,
		LogDirectory: t.TempDir(),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: scratch.Cgroup(name),
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: namespaces,
			},
		},
	}
	resp, err := p.runtime.RunPodSandbox(t.Context(),
		&runtimeapi.RunPodSandboxRequest{Config: p.config})
	if err != nil {
		t.Fatal(err)
	}
	p.id = resp.PodSandboxId
	return p
}

// run starts a container and waits until it has exited.
func (p *pod) run(image string, args ...string) *runtimeapi.ContainerStatus {
	p.t.Helper()
	id := p.start(image, args...)
	for {
		resp, err := p.runtime.ContainerStatus(p.t.Context(),
			&runtimeapi.ContainerStatusRequest{ContainerId: id})
		if err != nil {
			p.t.Fatal(err)
		}
		if resp.Status.State == runtimeapi.ContainerState_CONTAINER_EXITED {
			return resp.Status
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (p *pod) start(image string, args ...string) string {
	p.t.Helper()
	defer func() { p.started++ }()
	resp, err := p.runtime.CreateContainer(p.t.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId:  p.id,
		SandboxConfig: p.config,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "main", Attempt: p.started},
			Image:    &runtimeapi.ImageSpec{Image: image},
			Args:     args,
			Envs:     []*runtimeapi.KeyValue{{Key: "GREETING", Value: []byte("hello")}},
			LogPath:  "main.log",
			Linux: &runtimeapi.LinuxContainerConfig{
				Resources: &runtimeapi.LinuxContainerResources{CpusetCpus: "0"},
				SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
					NamespaceOptions: p.config.Linux.SecurityContext.NamespaceOptions,
				},
			},
		},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	_, err = p.runtime.StartContainer(p.t.Context(),
		&runtimeapi.StartContainerRequest{ContainerId: resp.ContainerId})
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.ContainerId
}

// output returns what the container has written, without the prefixes of the log format.
func (p *pod) output() string {
	p.t.Helper()
	f, err := os.Open(filepath.Join(p.config.LogDirectory, "main.log"))
	if err != nil {
		p.t.Fatal(err)
	}
	defer f.Close()
	var text strings.Builder
	for s := bufio.NewScanner(f); s.Scan(); {
		parts := strings.SplitN(s.Text(), " ", 4) // time stream tag text
		if len(parts) == 4 {
			text.WriteString(parts[3])
		}
	}
	return text.String()
}

func TestContainerd(t *testing.T) {
	var dir, parent string
	t.Run("run", func(t *testing.T) {
		d := rig.Containerd(t)
		dir = filepath.Dir(d.LogFile())
		p := newPod(t, d, "inside")
		parent = p.config.Linux.CgroupParent

		status := p.run(containerd.WorkImage, "--print", "--exit", "3")
		if status.ExitCode != 3 {
			t.Errorf("exit code %d, want 3; it wrote %s", status.ExitCode, p.output())
		}
		var report workload.Report
		if err := json.Unmarshal([]byte(p.output()), &report); err != nil {
			t.Fatalf("parse report %q: %v", p.output(), err)
		}
		if report.CPUs != "0" || report.Env["GREETING"] != "hello" || report.PID != 1 ||
			report.Hostname != "inside" {
			t.Errorf("report %+v", report)
		}
		if !slices.ContainsFunc(report.Devices, func(dev workload.Device) bool {
			return dev == workload.Device{Path: "/dev/null", Type: "c", Major: 1, Minor: 3}
		}) {
			t.Errorf("no /dev/null among devices %v", report.Devices)
		}
		p.start(containerd.WorkImage, "--ignore-term") // Stop has to kill this one
	})
	if dir == "" {
		t.Skip("left out")
	}
	nothingLeft(t, dir, parent)
}

// nothingLeft fails if the daemon in dir, whose pods were in parent, left traces on the machine.
func nothingLeft(t *testing.T, dir, parent string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, _ := os.ReadFile(file)
		if strings.Contains(string(text), dir) {
			t.Errorf("process %s is left: %q", file, text)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), dir) {
		t.Errorf("mounts are left in %s:\n%s", dir, mounts)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is left", dir)
	}
	notes, err := filepath.Glob(containerd.Config{Dir: dir}.NetworkNotes())
	if err != nil || len(notes) > 0 {
		t.Errorf("networks are left: %v %v", notes, err)
	}
	groups, err := filepath.Glob("/sys/fs/cgroup" + parent)
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("/sys/fs/cgroup/*" + parent)
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range append(groups, more...) {
		// The agent, here the test, removes the parent. No process may be left in it.
		if err := os.Remove(group); err != nil {
			t.Errorf("containers left something in their cgroup: %v", err)
		}
	}
}

// Stop, or another daemon in the same directory, cleans up the pods that a killed daemon left
// running.
func TestKilled(t *testing.T) {
	var dir, parent string
	t.Run("run", func(t *testing.T) {
		d := rig.Containerd(t)
		dir = filepath.Dir(d.LogFile())
		p := newPod(t, d, "orphan")
		parent = p.config.Linux.CgroupParent
		p.start(containerd.WorkImage, "--ignore-term")
		d.Kill()
	})
	if dir == "" {
		t.Skip("left out")
	}
	nothingLeft(t, dir, parent)
}

func TestPull(t *testing.T) {
	t.Run("run", func(t *testing.T) {
		d := rig.Containerd(t)
		push := rig.Registry(t, d, "pull.numalet.test")
		const ref = "pull.numalet.test/some/work:2"
		images := runtimeapi.NewImageServiceClient(connect(t, d))
		pull := func() error {
			_, err := images.PullImage(t.Context(), &runtimeapi.PullImageRequest{
				Image: &runtimeapi.ImageSpec{Image: ref}})
			return err
		}
		if err := pull(); err == nil {
			t.Error("an image that is not there was pulled")
		}
		image, err := containerd.Image(rig.Program(t), "work")
		if err != nil {
			t.Fatal(err)
		}
		push(ref, image)
		if err := pull(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestConfigErrors(t *testing.T) {
	for _, tc := range []struct {
		config containerd.Config
		want   string
	}{
		{containerd.Config{Dir: "relative"}, "must be a clean absolute path"},
		{containerd.Config{Dir: "/"}, "must be a clean absolute path"},
		{containerd.Config{Dir: "/tmp/" + strings.Repeat("x", 40)}, "choose a shorter one"},
		{containerd.Config{Dir: "/tmp/x", Binaries: "/none"}, "ctr in /none"},
		{containerd.Config{Dir: "/tmp/x", CNI: "/none"},
			"apt-get install containernetworking-plugins"},
	} {
		_, err := containerd.Start(context.Background(), tc.config)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("Start(%+v): %v, want an error with %q", tc.config, err, tc.want)
		}
	}
}
