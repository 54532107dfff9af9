package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// BenchmarkHollowNodes measures what a node of "numalet nodes" costs while nothing happens: memory
// of the process by its nodes (what the process has for itself has its part in it), its share of a
// CPU and its requests, over a minute. NUMALET_HOLLOW_NODES says how many there are, 20 without it;
// hundreds want a longer NUMALET_PATIENCE. It needs the servers of a cluster, in NUMALET_CLUSTER.
func BenchmarkHollowNodes(b *testing.B) {
	h := newHollow(b)
	for range b.N {
		h.start()
		time.Sleep(20 * time.Second) // until what begins has settled
		before := h.cpu()
		time.Sleep(time.Minute)
		used := h.cpu() - before
		b.ReportMetric(100*used.Minutes()/float64(h.count), "%core/node")
		b.ReportMetric(h.memory()/float64(h.count), "MiB/node")
		b.ReportMetric(requests(b, h.out)/float64(h.count), "requests/node/min")
		h.stop()
	}
}

// BenchmarkHollowPods measures ten pods for each node of "numalet nodes", which a scheduler places:
// how long it takes from the first to when all run, and until all are gone.
func BenchmarkHollowPods(b *testing.B) {
	h := newHollow(b)
	pods := 10 * h.count
	for range b.N {
		h.start()
		began := time.Now()
		h.each(pods, func(ctx context.Context, name string) error {
			_, err := h.Client.CoreV1().Pods(h.Namespace).Create(ctx, hollowPod(name),
				metav1.CreateOptions{})
			return err
		})
		h.await("all pods run", fmt.Sprintf("pods: %d running", pods))
		b.ReportMetric(time.Since(began).Seconds(), "s/running")
		b.ReportMetric(float64(pods)/time.Since(began).Seconds(), "pods/s")
		b.ReportMetric(h.memory()/float64(h.count), "MiB/node")
		began = time.Now()
		h.each(pods, func(ctx context.Context, name string) error {
			return h.Client.CoreV1().Pods(h.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
		})
		h.await("all pods are gone", "pods: 0 running, 0 pending")
		b.ReportMetric(time.Since(began).Seconds(), "s/gone")
		h.stop()
	}
}

// hollowPod returns a pod whose containers share CPUs and end at once.
func hollowPod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{
		NodeSelector: map[string]string{"hollow": "yes"},
		Tolerations:  []v1.Toleration{{Operator: v1.TolerationOpExists}},

		TerminationGracePeriodSeconds: ptr.To[int64](1),
		AutomountServiceAccountToken:  ptr.To(false),
		Containers: []v1.Container{{Name: "main", Image: "sim.local/app",
			Resources: v1.ResourceRequirements{Requests: podtest.Amounts("cpu=100m")},
		}},
	}}
}

// hollow is many nodes in a process.
type hollow struct {
	rig.Cluster
	b        *testing.B
	count    int
	out, dir string
	cmd      *exec.Cmd
}

func newHollow(b *testing.B) *hollow {
	if os.Getenv("NUMALET_CLUSTER") == "" {
		b.Skip("left out: NUMALET_CLUSTER does not name the servers (test/tools/build.sh cluster)")
	}
	h := &hollow{Cluster: rig.Start(b), b: b, count: 20}
	if text := os.Getenv("NUMALET_HOLLOW_NODES"); text != "" {
		var err error
		if h.count, err = strconv.Atoi(text); err != nil {
			b.Fatal("NUMALET_HOLLOW_NODES: ", err)
		}
	}
	return h
}

// start starts the nodes and waits until all are ready.
func (h *hollow) start() {
	h.b.Helper()
	h.dir = h.b.TempDir()
	h.out = filepath.Join(h.dir, "out")
	h.cmd = startHollow(h.b, h.Cluster, h.out, "--root-dir="+filepath.Join(h.dir, "root"),
		"--label=hollow=yes", fmt.Sprintf("--machine=fixture:playground=%d", h.count))
	h.await("the nodes are ready", fmt.Sprintf("%d of %d nodes ready", h.count, h.count))
}

// await waits until the last line says text.
func (h *hollow) await(what, text string) {
	h.b.Helper()
	harness.Eventually(h.b, what, func() error {
		if line := lastLine(h.b, h.out); !strings.Contains(line, text) {
			return fmt.Errorf("it says %q", line)
		}
		return nil
	})
}

// each calls do for so many names, some at the same time.
func (h *hollow) each(count int, do func(ctx context.Context, name string) error) {
	h.b.Helper()
	group, ctx := errgroup.WithContext(h.b.Context())
	group.SetLimit(16)
	for i := range count {
		group.Go(func() error { return do(ctx, fmt.Sprint("hollow-", i)) })
	}
	if err := group.Wait(); err != nil {
		h.b.Fatal(err)
	}
}

func (h *hollow) cpu() time.Duration { return harness.CPU(h.b, h.cmd.Process.Pid) }

// memory returns the resident memory in MiB.
func (h *hollow) memory() float64 { return harness.MemoryMiB(h.b, h.cmd.Process.Pid, "VmRSS") }

// stop stops the nodes, which must leave nothing.
func (h *hollow) stop() {
	h.b.Helper()
	if err := h.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		h.b.Fatal(err)
	}
	if err := h.cmd.Wait(); err != nil {
		h.b.Fatalf("the nodes ended with %v: %s", err, lastLine(h.b, h.out))
	}
	list, err := h.Client.CoreV1().Nodes().List(h.b.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) > 0 {
		h.b.Errorf("%d nodes are left: %v", len(list.Items), err)
	}
}

// startHollow starts many nodes that write to out, until the benchmark ends.
func startHollow(b *testing.B, c rig.Cluster, out string, args ...string) *exec.Cmd {
	b.Helper()
	binary, err := harness.Lab()
	if err != nil {
		b.Fatal(err)
	}
	file, err := os.Create(out)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	cmd := exec.Command(binary, append([]string{"nodes", "--cleanup",
		"--kubeconfig=" + c.AdminKubeconfig()}, args...)...)
	cmd.Stdout, cmd.Stderr = file, file
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill() // it may have ended
			_ = cmd.Wait()
		}
	})
	return cmd
}

// lastLine returns the last line about all nodes.
func lastLine(b *testing.B, file string) string {
	b.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	var last string
	for line := range strings.Lines(string(raw)) {
		if strings.Contains(line, "requests a minute") {
			last = line
		}
	}
	return last
}

// requests returns the requests per minute in the last line.
func requests(b *testing.B, file string) float64 {
	b.Helper()
	line := lastLine(b, file)
	_, text, _ := strings.Cut(line, "failed; ")
	n, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(text), " requests a minute"), 64)
	if err != nil {
		b.Fatalf("line %q: %v", line, err)
	}
	return n
}
