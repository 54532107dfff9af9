package test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/harness"
)

// ended runs the binary until it exits by itself and returns its exit code and standard error.
func ended(t testing.TB, args ...string) (code int, stderr string) {
	t.Helper()
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	var out bytes.Buffer
	cmd.Stderr = &out
	_ = cmd.Run() // the exit code is checked
	if ctx.Err() != nil {
		t.Fatalf("numalet %q did not end:\n%s", args, &out)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

// TestBadConfiguration expects exit code 1 and one line that names the field or flag.
func TestBadConfiguration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" +
		"cgroupsPerQOS: false\nenforceNodeAllocatable: [none]\nfailSwapOn: false\n" +
		"containerRuntimeEndpoint: unix:///none/at/all.sock\n"
	dropIn := filepath.Join(dir, "conf.d")
	if err := os.Mkdir(dropIn, 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dropIn, "10-bad.conf"), head+"maxPods: many\n")
	tests := []struct {
		name, config string
		flags        []string
		phrases      []string
	}{
		{"unknown field", head + "memorySwop: {}\n", nil, []string{"memorySwop"}},
		{"unknown field below", head + "logging: {formatt: text}\n", nil,
			[]string{"logging.formatt"}},
		{"wrong type", head + "maxPods: many\n", nil, []string{"maxPods", "many"}},
		{"wrong kind", "apiVersion: v1\nkind: Pod\n", nil, []string{"KubeletConfiguration"}},
		{"not YAML", "apiVersion: [\n", nil, []string{"YAML"}},
		{"empty", "", nil, []string{"empty"}},
		{"given twice", head + "maxPods: 1\nmaxPods: 2\n", nil, []string{"maxPods"}},
		{"bad value", head + "cpuManagerPolicy: dynamic\n", nil, []string{"cpuManagerPolicy"}},
		{"conflict", head + "cpuManagerPolicy: static\n", nil, []string{"cpu"}},
		{"bad policy", head + "topologyManagerPolicy: most\n", nil,
			[]string{"topologyManagerPolicy"}},
		{"drop-in", head, []string{"--config-dir=" + dropIn}, []string{"10-bad.conf", "maxPods"}},
		{"unknown flag", head, []string{"--no-such-flag"}, []string{"--no-such-flag"}},
		{"bad flag value", head, []string{"--max-pods=many"}, []string{"--max-pods"}},
		{"an argument", head, []string{"serve"}, []string{"serve"}},
		{"no kubeconfig", head + "podLogsDir: " + dir + "/logs\n",
			[]string{"--kubeconfig=/no/such/file"}, []string{"--kubeconfig", "/no/such/file"}},
		{"no machine", head + "podLogsDir: " + dir + "/logs\n",
			[]string{"--topology-from=/no/such/file"}, []string{"/no/such/file"}},
	}
	for i, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(dir, fmt.Sprintf("config-%d.yaml", i))
			writeFile(t, file, tc.config)
			code, stderr := ended(t, append([]string{
				"--config=" + file, "--root-dir=" + filepath.Join(dir, "root"),
			}, tc.flags...)...)
			last := lastLine(stderr)
			if code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			for _, phrase := range tc.phrases {
				if !strings.Contains(last, phrase) {
					t.Errorf("the error does not name %q: %s", phrase, stderr)
				}
			}
			if !strings.HasPrefix(tc.name, "no ") && strings.Count(stderr, "\n") != 1 {
				t.Errorf("want exactly one line on stderr, got:\n%s", stderr)
			}
		})
	}
}

func writeFile(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func TestRuntimeAbsentAtStart(t *testing.T) {
	t.Parallel()
	n := harness.NewOn(t, "unix:///none/at/all.sock")
	config := filepath.Join(n.Dir, "config.yaml")
	writeFile(t, config, "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"+
		"containerRuntimeEndpoint: "+n.Endpoint+"\nfailSwapOn: false\ncgroupsPerQOS: false\n"+
		"enforceNodeAllocatable: [none]\nruntimeRequestTimeout: 2s\npodLogsDir: "+n.Dir+"/logs\n")
	code, stderr := ended(t, append([]string{"--config=" + config}, n.Args...)...)
	last := lastLine(stderr)
	if code != 1 || !strings.Contains(last, n.Endpoint) ||
		!strings.Contains(last, "is the runtime running and listening there?") {
		t.Errorf("exit code %d, want 1, and an error that names the endpoint and what to look "+
			"at: %s", code, last)
	}
}

// TestPodCIDR: the runtime is told the configured range of addresses.
func TestPodCIDR(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Settings["podCIDR"] = "10.9.0.0/24"
	n.Start()
	n.Eventually("the runtime knows podCIDR", func() error {
		if got := n.Runtime.State().PodCIDR; got != "10.9.0.0/24" {
			return fmt.Errorf("it has %q", got)
		}
		return nil
	})
}

// TestOptionsWithoutEffect: each option without effect is logged once by name, and no others are.
func TestOptionsWithoutEffect(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Settings["kernelMemcgNotification"] = true
	n.Args = append(n.Args, "--max-open-files=4096", "--housekeeping-interval=1s", "-v=0")
	n.Start()
	log := readLog(t, n)
	if strings.Count(log, `"Effective KubeletConfiguration"`) != 1 ||
		!strings.Contains(log, "--max-open-files=4096") ||
		!strings.Contains(log, "\tmaxOpenFiles: 4096\n") {
		t.Error("the log does not have the effective configuration")
	}
	const logLine = "Accepted without effect"
	const name = "--housekeeping-interval"
	if got := logged(t, n, logLine, `"`+name); got != 1 {
		t.Errorf("%s is reported %d times, want once", name, got)
	}
	for _, name := range []string{"staticPodPath", "cpuManagerPolicy", "kernelMemcgNotification",
		"--max-open-files",
		"--root-dir", "failSwapOn"} {
		if got := logged(t, n, logLine, `"`+name); got != 0 {
			t.Errorf("%s is reported although it has effect", name)
		}
	}
}

func TestLockFile(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	lock := filepath.Join(n.Dir, "lock")
	n.Args = append(n.Args, "--lock-file="+lock)
	n.Start()
	code, stderr := ended(t, append([]string{"--config=" + filepath.Join(n.Dir, "config.yaml")},
		n.Args...)...)
	if last := lastLine(stderr); code != 1 || !strings.Contains(last, lock) {
		t.Errorf("a second agent: exit code %d, %s; want 1 and the lock file's name", code, last)
	}
	n.Kill()
	n.Start() // the lock went with the process that held it
}

func TestExitOnLockContention(t *testing.T) {
	t.Parallel()
	if code, stderr := ended(t, "--exit-on-lock-contention"); code != 1 ||
		!strings.Contains(stderr, "--lock-file") {
		t.Errorf("without a lock file: exit code %d: %s", code, stderr)
	}
	n := harness.New(t)
	lock := filepath.Join(n.Dir, "lock")
	n.Args = append(n.Args, "--lock-file="+lock, "--exit-on-lock-contention")
	n.Start()
	n.Pod("app", plain("app"))
	n.AwaitPhase("app-node", v1.PodRunning)
	f, err := os.Open(lock)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n.Eventually("the agent has given the lock back", func() error {
		return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	})
	awaitLogged(t, n, "Another process wants the lock file")
	if got := calls(n, call{method: "StopContainer"}); len(got) != 0 {
		t.Errorf("containers were stopped: %+v", got)
	}
}

func TestPorts(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	healthz := harness.FreePort(t)
	n.Settings["healthzPort"] = healthz
	n.Settings["healthzBindAddress"] = "127.0.0.1"
	n.Start()
	n.Pod("app", plain("app"))
	n.AwaitPhase("app-node", v1.PodRunning)
	n.Eventually("the health port answers", func() error {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/healthz", healthz))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err == nil && (resp.StatusCode != http.StatusOK || string(body) != "ok") {
			err = fmt.Errorf("it answers %s: %s", resp.Status, body)
		}
		return err
	})
	if got := n.Get("/healthz"); got != "ok" {
		t.Errorf("/healthz: %q", got)
	}
	if got := n.Get("/pods"); !strings.Contains(got, `"kind":"PodList"`) ||
		!strings.Contains(got, `"app-node"`) {
		t.Errorf("/pods: %s", got)
	}
	metrics := n.Get("/metrics")
	for _, name := range []string{"kubelet_node_name", "kubelet_pleg_relist_duration_seconds",
		"go_goroutines", "process_"} {
		if !strings.Contains(metrics, name) {
			t.Errorf("/metrics lacks %s", name)
		}
	}
	for _, path := range []string{"/healthz", "/pods", "/metrics"} {
		resp, err := http.Post(n.URL(path), "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %s, want 405", path, resp.Status)
		}
	}
	resp, err := http.Get(n.URL("/nothing/here"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("GET /nothing/here: %s, want 404", resp.Status)
	}
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n := harness.New(t)
	n.Start() // writes the configuration
	n.Kill()
	port := fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
	code, stderr := ended(t, append([]string{"--config=" + filepath.Join(n.Dir, "config.yaml"),
		"--read-only-port=" + port}, n.Args...)...)
	if last := lastLine(stderr); code != 1 || !strings.Contains(last, port) {
		t.Errorf("exit code %d, %s; want 1 and the port", code, last)
	}
}

func TestSystemdIsNotified(t *testing.T) {
	// Not parallel: the agent inherits NOTIFY_SOCKET from this process.
	n := harness.New(t)
	socket := filepath.Join(n.Dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	read := func() string {
		t.Helper()
		if err := conn.SetReadDeadline(time.Now().Add(harness.Patience)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 4096)
		count, err := conn.Read(buf)
		if err != nil {
			t.Fatalf("wait for a notification: %v", err)
		}
		return string(buf[:count])
	}
	n.Start()
	if got := read(); got != "READY=1" {
		t.Errorf("the first notification is %q, want READY=1", got)
	}
	if err := n.Stop(); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	if got := read(); got != "STOPPING=1" {
		t.Errorf("the last notification is %q, want STOPPING=1", got)
	}
	t.Setenv("WATCHDOG_USEC", "3000000") // a unit with WatchdogSec=3s
	n.Start()
	for left := map[string]int{"READY=1": 1, "WATCHDOG=1": 3}; len(left) > 0; {
		got := read()
		if left[got]--; left[got] == 0 {
			delete(left, got)
		} else if left[got] < 0 && got != "WATCHDOG=1" {
			t.Fatalf("told %q", got)
		}
	}
}

func TestJSONLogs(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Settings["logging"] = map[string]any{"format": "json"}
	n.Start()
	for line := range strings.Lines(readLog(t, n)) {
		if !strings.HasPrefix(line, "{") {
			t.Errorf("a line of the log is not JSON: %s", line)
		}
	}
}
