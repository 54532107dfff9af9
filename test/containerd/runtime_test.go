package containerd_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func needsCPUs(t *testing.T, n int) {
	t.Helper()
	if runtime.NumCPU() < n {
		t.Skipf("needs %d CPUs", n)
	}
}

func (w world) dial() *grpc.ClientConn {
	w.t.Helper()
	conn, err := grpc.NewClient(w.daemon.Endpoint(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	return conn
}

// inRuntime returns the runtime's own status of a container of the pod.
func (w world) inRuntime(pod v1.Pod, container string) *runtimeapi.ContainerStatus {
	w.t.Helper()
	resp, err := runtimeapi.NewRuntimeServiceClient(w.dial()).ContainerStatus(w.t.Context(),
		&runtimeapi.ContainerStatusRequest{ContainerId: w.id(pod, container)})
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.Status
}

// id returns the container's id in the runtime.
func (w world) id(pod v1.Pod, container string) string {
	w.t.Helper()
	_, id, ok := strings.Cut(w.statusOf(pod, container).ContainerID, "containerd://")
	if !ok {
		w.t.Fatalf("pod %s: container %s has id %q", pod.Name, container,
			w.statusOf(pod, container).ContainerID)
	}
	return id
}

// end describes how a container ended.
type end struct {
	code int32
	at   time.Time
}

// ends collects how containers end, from the runtime's events: a pod that is removed takes what
// the node knows of it along.
type ends struct {
	w  world
	mu sync.Mutex
	of map[string]end // by pod/container, the last one
}

// watchEnds collects every end from now on.
func (w world) watchEnds() *ends {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	conn := w.dial()
	stream, err := runtimeapi.NewRuntimeServiceClient(conn).GetContainerEvents(ctx,
		&runtimeapi.GetEventsRequest{})
	if err != nil {
		w.t.Fatal(err)
	}
	e := &ends{w: w, of: map[string]end{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			event, err := stream.Recv()
			if err != nil {
				return // the test is over
			}
			e.take(event)
		}
	}()
	w.t.Cleanup(func() {
		cancel()
		<-done
	})
	return e
}

func (e *ends) take(event *runtimeapi.ContainerEventResponse) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range event.ContainersStatuses {
		if c.State == runtimeapi.ContainerState_CONTAINER_EXITED {
			key := event.PodSandboxStatus.GetMetadata().GetName() + "/" + c.Metadata.Name
			e.of[key] = end{code: c.ExitCode, at: time.Unix(0, c.FinishedAt)}
		}
	}
}

func (e *ends) get(key string) (end, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	got, ok := e.of[key]
	return got, ok
}

// await waits for the end of pod/container.
func (e *ends) await(w world, key string) (got end) {
	w.t.Helper()
	w.Eventually("the runtime tells of the end of "+key, func() error {
		var ok bool
		if got, ok = e.get(key); !ok {
			return os.ErrNotExist
		}
		return nil
	})
	return got
}

// group returns the pod's cgroup below the root of each hierarchy.
func (w world) group(pod v1.Pod, class v1.PodQOSClass) string {
	return filepath.Join(w.qosGroup(class), "pod"+string(pod.UID))
}

// qosGroup returns the cgroup of a class.
func (w world) qosGroup(class v1.PodQOSClass) string {
	if class == v1.PodQOSGuaranteed {
		return filepath.Join(w.cgroup, "kubepods")
	}
	return filepath.Join(w.cgroup, "kubepods", strings.ToLower(string(class)))
}

// unified reports whether the host has cgroup v2.
func unified() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}

// cgroupFile reads a file of a cgroup, which v1 has in the folder of a controller.
func cgroupFile(group, controller, file string) (string, error) {
	dir := filepath.Join("/sys/fs/cgroup", controller, group)
	if unified() {
		dir = filepath.Join("/sys/fs/cgroup", group)
	}
	raw, err := os.ReadFile(filepath.Join(dir, file))
	return strings.TrimSpace(string(raw)), err
}

// setting is a value of a cgroup as cgroup v1 and v2 have it; a version without a name has none.
type setting struct {
	controller       string
	legacy, legacyIs string
	v2, v2Is         string
}

func (w world) expect(group string, settings ...setting) {
	w.t.Helper()
	for _, s := range settings {
		file, want := s.name(), s.is()
		if file == "" {
			continue
		}
		got, err := cgroupFile(group, s.controller, file)
		if err != nil {
			w.t.Error(err)
		} else if got != want {
			w.t.Errorf("%s of %s is %q, want %q", file, group, got, want)
		}
	}
}

// pids returns the processes directly in a cgroup; none if it does not exist.
func pids(group string) (out []int) {
	text, err := cgroupFile(group, "cpuset", "cgroup.procs")
	if err != nil {
		return nil
	}
	for _, field := range strings.Fields(text) {
		if pid, err := strconv.Atoi(field); err == nil {
			out = append(out, pid)
		}
	}
	return out
}
