package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// BenchmarkHollowNodes measures what a node of "numalet nodes" costs while nothing happens: memory
// of the process by its nodes (what the process has for itself has its part in it), its share of a
// CPU and its requests, over a minute. NUMALET_HOLLOW_NODES says how many there are, 20 without it.
// It needs the servers of a cluster, in NUMALET_CLUSTER.
func BenchmarkHollowNodes(b *testing.B) {
	if os.Getenv("NUMALET_CLUSTER") == "" {
		b.Skip("left out: NUMALET_CLUSTER does not name the servers (test/tools/build.sh cluster)")
	}
	c := rig.Start(b)
	count := 20
	if text := os.Getenv("NUMALET_HOLLOW_NODES"); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil {
			b.Fatal("NUMALET_HOLLOW_NODES: ", err)
		}
	}
	for range b.N {
		dir := b.TempDir()
		out := filepath.Join(dir, "out")
		cmd := startHollow(b, c, out, "--root-dir="+filepath.Join(dir, "root"),
			fmt.Sprintf("--machine=fixture:playground=%d", count))
		harness.Eventually(b, "the nodes are ready", func() error {
			want := fmt.Sprintf("%d of %d nodes ready", count, count)
			if line := lastLine(b, out); !strings.HasPrefix(line, want) {
				return fmt.Errorf("it says %q", line)
			}
			return nil
		})
		time.Sleep(20 * time.Second) // until what begins has settled
		pid, before := cmd.Process.Pid, harness.CPU(b, cmd.Process.Pid)
		time.Sleep(time.Minute)
		used := harness.CPU(b, pid) - before
		b.ReportMetric(100*used.Minutes()/float64(count), "%core/node")
		b.ReportMetric(harness.MemoryMiB(b, pid, "VmRSS")/float64(count), "MiB/node")
		b.ReportMetric(requests(b, out)/float64(count), "requests/node/min")
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			b.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			b.Fatalf("the nodes ended with %v: %s", err, lastLine(b, out))
		}
	}
	list, err := c.Client.CoreV1().Nodes().List(b.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) > 0 {
		b.Errorf("%d nodes are left: %v", len(list.Items), err)
	}
}

// startHollow starts many nodes that write to out, until the benchmark ends.
func startHollow(b *testing.B, c rig.Cluster, out string, args ...string) *exec.Cmd {
	b.Helper()
	binary, err := harness.Binary()
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

// lastLine is the last that was said about all nodes.
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

// requests is how many a minute the last line tells of.
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
