package bench

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/numalet/numalet/test/harness"
	"github.com/numalet/numalet/test/scratch"
)

// BenchmarkGPUPluginIdle measures the idle GPU plugin: a process that offers eight GPUs of a
// machine as data, whole, and divided into 56 MIG devices.
func BenchmarkGPUPluginIdle(b *testing.B) {
	binary := filepath.Join(b.TempDir(), "numalet-gpu")
	build := exec.CommandContext(limited(b), "go", "build", "-o", binary,
		"github.com/numalet/numalet/cmd/numalet-gpu")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	for _, c := range []struct{ name, resource, order string }{
		{"8-GPUs", "nvidia.com-gpu", ""},
		{"56-MIG-devices", "nvidia.com-mig-1g.10gb", "mig %[1]d on\ndivide %[1]d 1g.10gb=7"},
	} {
		b.Run(c.name, func(b *testing.B) {
			dir := scratch.Dir(b)
			orders := filepath.Join(dir, "orders.sock")
			plugin := exec.CommandContext(b.Context(), binary, "--mock", "dgxh100",
				"--mig-strategy", "mixed", "--mock-orders", orders,
				"--kubelet-socket", filepath.Join(dir, "kubelet.sock"))
			must(b, plugin.Start())
			b.Cleanup(func() {
				_ = plugin.Process.Kill() // it may have ended
				_ = plugin.Wait()
			})
			awaitFile(b, orders)
			if c.order != "" {
				divideAll(b, orders, c.order)
			}
			awaitFile(b, filepath.Join(dir, "numalet-"+c.resource+".sock"))
			idle(b, plugin.Process.Pid)
		})
	}
}

// divideAll gives the order for each of the eight GPUs.
func divideAll(b *testing.B, orders, order string) {
	conn, err := net.Dial("unix", orders)
	must(b, err)
	defer conn.Close()
	answers := bufio.NewScanner(conn)
	for i := range 8 {
		_, err := fmt.Fprintf(conn, order+"\n", i)
		must(b, err)
		for range 2 {
			if !answers.Scan() || answers.Text() != "ok" {
				b.Fatalf("GPU %d: %q, %v", i, answers.Text(), answers.Err())
			}
		}
	}
}

// idle reports what a process uses.
func idle(b *testing.B, pid int) {
	time.Sleep(min(5*time.Second, idleTime()))
	before, begin := harness.CPU(b, pid), time.Now()
	for b.Loop() {
		time.Sleep(idleTime())
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(100*float64(harness.CPU(b, pid)-before)/float64(time.Since(begin)),
		"%-of-a-core")
	b.ReportMetric(harness.MemoryMiB(b, pid, "VmRSS"), "resident-MiB")
}

func awaitFile(b *testing.B, path string) {
	b.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if time.Now().After(deadline) {
			b.Fatal("there is no ", path)
		}
	}
}
