package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/assigned"
	"github.com/numalet/numalet/test/harness"
)

const nvidiaGPU = "nvidia.com/gpu"

// The first try of a user without GPUs: the playground assigns two and two of those of a DGX H100, each
// pod's close together, and there is room for a pod with four that a user drops.
func TestPlaygroundWithGPUs(t *testing.T) {
	t.Parallel()
	t.Run("at the start", func(t *testing.T) {
		if given, _ := playgroundGPUs(t); given != 4 {
			t.Errorf("%d GPUs were given", given)
		}
	})
	t.Run("with more", func(t *testing.T) {
		all := t.TempDir()
		for _, folder := range []string{"../examples/gpu", "../examples/gpu/more"} {
			if err := os.CopyFS(all, onlyFiles{os.DirFS(folder)}); err != nil {
				t.Fatal(err)
			}
		}
		if given, counts := playgroundGPUs(t, "--examples="+all); given != 8 || counts[2] != 2 || counts[4] != 1 {
			t.Errorf("%d GPUs were given, so many to so many pods: %v", given, counts)
		}
	})
}

// onlyFiles leaves out folders.
type onlyFiles struct{ fs.FS }

func (f onlyFiles) ReadDir(name string) ([]fs.DirEntry, error) {
	all, err := fs.ReadDir(f.FS, name)
	return slices.DeleteFunc(all, fs.DirEntry.IsDir), err
}

// playgroundGPUs returns how many GPUs the playground gives, and how many pods get so many.
func playgroundGPUs(t *testing.T, args ...string) (n int, counts map[int]int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, binary, append([]string{"playground", "--gpu=dgxh100", "--once",
		"--output=json"}, args...)...)
	scratch, err := os.MkdirTemp("", "nl-") // a socket's path has little room
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	cmd.Env = append(os.Environ(), "TMPDIR="+scratch)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var rows []assigned.Row
	if err := json.Unmarshal(out, &rows); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	given, counts := map[string]bool{}, map[int]int{}
	for _, r := range rows {
		ids := r.Devices[nvidiaGPU]
		counts[len(ids)]++
		for _, id := range ids {
			given[id] = true
		}
		if r.Aligned == nil || !*r.Aligned || len(r.NUMANodes) != 1 {
			t.Errorf("%s has %v on nodes %s", r.Pod, ids, r.NUMANodes)
		}
	}
	return len(given), counts
}

// gpuPlugin runs the GPU plugin for a node with the GPUs of a DGX H100. do gives orders to the
// mock.
func gpuPlugin(t *testing.T, n *harness.Node, args ...string) (
	process *os.Process, do func(order string)) {
	t.Helper()
	orders, out := filepath.Join(n.Dir, "orders.sock"), filepath.Join(n.Dir, "gpu.log")
	log, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(harness.GPUPlugin(t), append([]string{
		"--mock=dgxh100", "--mock-orders=" + orders,
		"--kubelet-socket=" + filepath.Join(n.Root, "device-plugins", "kubelet.sock"),
	}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the GPU plugin ended with %v", err)
		}
		if text, _ := os.ReadFile(out); t.Failed() {
			t.Logf("the GPU plugin said:\n%s", text)
		}
	})
	return cmd.Process, func(order string) {
		t.Helper()
		harness.Eventually(t, "the plugin takes the order", func() error {
			conn, err := net.Dial("unix", orders)
			if err != nil {
				return err
			}
			defer conn.Close()
			_, err = fmt.Fprintln(conn, order)
			if write, ok := conn.(*net.UnixConn); ok {
				err = errors.Join(err, write.CloseWrite())
			}
			said, _ := io.ReadAll(conn)
			t.Logf("%s: %s", order, said)
			return err
		})
	}
}

// The reason why a GPU is unhealthy appears where users look at its pod, and in the plugin's
// metrics.
func TestGPUsReasons(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	address := fmt.Sprintf("127.0.0.1:%d", harness.FreePort(t))
	_, do := gpuPlugin(t, n, "--metrics-address="+address)
	n.Pod("train", limited("train", "cpu: 1, nvidia.com/gpu: 8"))
	pod := n.AwaitPhase("train-node", v1.PodRunning)
	if ids := pod.Status.ContainerStatuses[0].AllocatedResourcesStatus; len(ids) != 1 ||
		len(ids[0].Resources) != 8 {
		t.Fatalf("it has %v", ids)
	}
	do("lose 3")
	awaitEvent(n, "train-node", "DeviceUnhealthy", "Container main: device "+
		"GPU-00000003-6e75-6d61-6c65-740000000000 of nvidia.com/gpu: unhealthy, says the device "+
		"plugin: FellOffBus: the GPU does not answer; reboot the node; the container keeps", 1)
	do("return 3")
	awaitEvent(n, "train-node", "DeviceHealthy", "", 1)
	metrics := get(t, "http://"+address+"/metrics")
	for _, want := range []string{
		`numalet_gpu_health_changes_total{gpu="GPU-00000003-6e75-6d61-6c65-740000000000",reason="FellOffBus"} 1`,
		`numalet_gpu_health_changes_total{gpu="GPU-00000003-6e75-6d61-6c65-740000000000",reason="Recovered"} 1`,
		`numalet_gpu_devices{reason="",resource="nvidia.com/gpu"} 8`, "numalet_gpu_driver_up 1",
	} {
		if !slices.Contains(strings.Split(metrics, "\n"), want) {
			t.Errorf("the metrics lack %s:\n%s", want, metrics)
		}
	}
	if said := get(t, "http://"+address+"/healthz"); said != "ok\n" {
		t.Errorf("/healthz says %q", said)
	}
}

// After SIGHUP the plugin starts again with its configuration file, unless the file is wrong.
func TestGPUsBeginAnew(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	file := filepath.Join(n.Dir, "gpus.yaml")
	say := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	await := func(what string, is func() bool) {
		t.Helper()
		n.Eventually(what, func() error {
			if !is() {
				return errors.New(n.Get("/plugins"))
			}
			return nil
		})
	}
	say("version: v1")
	process, _ := gpuPlugin(t, n, "--config-file="+file)
	await("8 GPUs are offered", func() bool { return entryOf(n, "/plugins", nvidiaGPU) != "" })

	say("version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 1000000}]}}")
	if err := process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	await("the plugin says what is wrong", func() bool {
		said, _ := os.ReadFile(filepath.Join(n.Dir, "gpu.log"))
		return strings.Contains(string(said), "SIGHUP: everything stays as it was") &&
			strings.Contains(string(said), "want 2 to")
	})
	say("version: v1\nsharing: {timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/gpu, " +
		"replicas: 4}]}}")
	if err := process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	await("32 shares are offered", func() bool {
		return strings.Contains(entryOf(n, "/plugins", nvidiaGPU+".shared"), "devices:32")
	})
}

func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
