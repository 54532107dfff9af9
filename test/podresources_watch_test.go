package test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/numalet/numalet/agent/serving/podresources/watchv1"
	"github.com/numalet/numalet/test/harness"
)

// watched is a client with a watch. If the watch ends, it watches again from where it was.
type watched struct {
	conn *grpc.ClientConn

	mu        sync.Mutex // guards the fields below
	mirror    watchv1.Mirror
	snapshots int
	instances []string
}

func podResources(n *harness.Node, t *testing.T) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+filepath.Join(n.Root, "pod-resources", "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// follow watches until the test ends.
func follow(t *testing.T, conn *grpc.ClientConn) *watched {
	t.Helper()
	w := &watched{conn: conn}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			w.once(ctx)
		}
	})
	t.Cleanup(done.Wait)
	t.Cleanup(cancel)
	return w
}

func (w *watched) once(ctx context.Context) {
	w.mu.Lock()
	req := &watchv1.WatchRequest{
		Instance: w.mirror.Instance, Generation: w.mirror.Generation, Allocatable: true,
	}
	w.mu.Unlock()
	stream, err := watchv1.NewPodResourcesWatcherClient(w.conn).Watch(ctx, req,
		grpc.WaitForReady(true))
	for err == nil {
		var r *watchv1.WatchResponse
		if r, err = stream.Recv(); err == nil {
			w.apply(r)
		}
	}
}

func (w *watched) apply(r *watchv1.WatchResponse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.GetSnapshot() != nil {
		w.snapshots++
		w.instances = append(w.instances, r.GetInstance())
	}
	w.mirror.Apply(r)
}

// agrees returns an error unless the watch has the same as List and GetAllocatableResources, at
// their generation.
func (w *watched) agrees() (pods int, err error) {
	lister := podresourcesv1.NewPodResourcesListerClient(w.conn)
	var header metadata.MD
	list, err := lister.List(context.Background(), &podresourcesv1.ListPodResourcesRequest{},
		grpc.Header(&header))
	if err != nil {
		return 0, err
	}
	all, err := lister.GetAllocatableResources(context.Background(),
		&podresourcesv1.AllocatableResourcesRequest{})
	if err != nil {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	at := header.Get(watchv1.InstanceHeader)[0] + " " + header.Get(watchv1.GenerationHeader)[0]
	if got := w.mirror.Instance + " " + strconv.FormatUint(w.mirror.Generation, 10); got != at ||
		!w.mirror.Complete {
		return 0, fmt.Errorf("the watch is at %s, List at %s", got, at)
	}
	var has podresourcesv1.ListPodResourcesResponse
	for _, pod := range w.mirror.Pods() {
		has.PodResources = append(has.PodResources, pod.Resources)
	}
	if !proto.Equal(&has, list) {
		return 0, fmt.Errorf("the watch has %v, List %v", &has, list)
	}
	if got := w.mirror.Allocatable(); !slices.Equal(got.CpuIds, all.CpuIds) ||
		len(got.Devices) != len(all.Devices) {
		return 0, fmt.Errorf("the watch has allocatable %v, GetAllocatableResources %v", got, all)
	}
	return len(list.PodResources), nil
}

func (w *watched) await(t *testing.T, what string, pods int) {
	t.Helper()
	harness.Eventually(t, what, func() error {
		got, err := w.agrees()
		if err == nil && got != pods {
			err = fmt.Errorf("%d pods, want %d", got, pods)
		}
		return err
	})
}

// TestPodResourcesWatch: a watch always catches up with List while pods and devices come and go and
// the agent restarts. Only the restart causes another snapshot.
func TestPodResourcesWatch(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	w := follow(t, podResources(n, t))
	w.await(t, "the watch has the empty node", 0)
	_, stop := n.Plugin("example.com/gpu", "--devices=8", "--nodes=0-3")
	harness.Eventually(t, "the watch has the devices", func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if got := len(w.mirror.Allocatable().Devices); got != 8 {
			return fmt.Errorf("%d devices", got)
		}
		return nil
	})
	n.Pod("own", limited("own", "cpu: 4, memory: 1Gi, example.com/gpu: 2"))
	n.Pod("shared", plain("shared"))
	n.AwaitPhase("own-node", v1.PodRunning)
	n.AwaitPhase("shared-node", v1.PodRunning)
	w.await(t, "the watch has both pods", 2)
	w.mu.Lock()
	own := w.mirror.Pods()[0].Resources.Containers[0]
	if len(own.CpuIds) != 4 || len(own.Devices) != 2 || w.snapshots != 1 {
		t.Errorf("watched %v after %d snapshots", own, w.snapshots)
	}
	w.mu.Unlock()

	n.RemovePod("own")
	n.AwaitGone("own-node")
	w.await(t, "the watch lost the pod", 1)
	stop()
	harness.Eventually(t, "the devices of a plugin that went are gone", func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if got := len(w.mirror.Allocatable().Devices); got != 0 {
			return fmt.Errorf("%d devices", got)
		}
		return nil
	})
	if w.snapshots != 1 {
		t.Errorf("%d snapshots without a restart", w.snapshots)
	}

	n.Kill()
	n.Start()
	w.await(t, "the watch goes on with the agent's next run", 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.instances) < 2 || w.instances[0] == w.instances[len(w.instances)-1] {
		t.Errorf("instances %v, want another one after the restart", w.instances)
	}
}

// TestPodResourcesCommand: the subcommand prints what the socket serves, and follows it.
func TestPodResourcesCommand(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	n.Plugin("example.com/gpu", "--devices=2", "--nodes=0")
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	socket := "--socket=" + filepath.Join(n.Root, "pod-resources", "kubelet.sock")
	n.Pod("own", limited("own", "cpu: 2, memory: 1Gi, example.com/gpu: 2"))
	n.AwaitPhase("own-node", v1.PodRunning)

	out, err := exec.Command(binary, "podresources", socket).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "NAMESPACE") ||
		!strings.Contains(lines[1], "own-node") || !strings.Contains(lines[1], "example.com/gpu=") {
		t.Errorf("table:\n%s", out)
	}
	asJSON, err := exec.Command(binary, "podresources", socket,
		"-o", "json", "--allocatable").Output()
	if err != nil || bytes.Count(asJSON, []byte(`"deviceIds"`)) != 2 {
		t.Errorf("JSON: %v\n%s", err, asJSON)
	}

	log := filepath.Join(n.Dir, "watch")
	file, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	watch := exec.Command(binary, "podresources", socket, "--watch", "--resource=cpu")
	watch.Stdout = file
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	says := func(want string) {
		t.Helper()
		harness.Eventually(t, "the watch says "+want, func() error {
			raw, err := os.ReadFile(log)
			if err == nil && !strings.Contains(string(raw), want) {
				err = errors.New(string(raw))
			}
			return err
		})
	}
	says("BOOKMARK")
	n.RemovePod("own")
	says("DELETED")
	_ = watch.Process.Signal(os.Interrupt)
	if err := watch.Wait(); err != nil {
		t.Errorf("interrupted: %v", err)
	}

	for _, bad := range [][]string{
		{"--socket=" + n.Dir + "/none"}, {socket, "-o", "yaml"}, {socket, "--resource", "cpu"},
		{socket, "nobody"}, {socket, "--root-dir", n.Root},
	} {
		out, err := exec.Command(binary,
			append([]string{"podresources"}, bad...)...).CombinedOutput()
		if err == nil || bytes.Count(bytes.TrimSpace(out), []byte("\n")) != 0 {
			t.Errorf("%v: %v\n%s", bad, err, out)
		}
	}
}
