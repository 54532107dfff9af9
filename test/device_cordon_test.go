package test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/devices"
	"github.com/numalet/numalet/deviceplugin/cordon"
	"github.com/numalet/numalet/test/harness"
)

// device runs "numalet device" on the node and returns its output as one line.
func device(t *testing.T, n *harness.Node, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	args = append(append([]string{"device"}, args...), "--root-dir", n.Root)
	out, err := exec.CommandContext(ctx, binary, args...).CombinedOutput()
	return strings.Join(strings.Fields(string(out)), " "), err
}

// says runs "numalet device", which must succeed and print want.
func says(t *testing.T, n *harness.Node, want string, args ...string) {
	t.Helper()
	if out, err := device(t, n, args...); err != nil || !strings.Contains(out, want) {
		t.Errorf("numalet device %v: %s (%v), want %q", args, out, err, want)
	}
}

// awaitNoted waits for an event of the node.
func awaitNoted(n *harness.Node, reason, text string) {
	n.Eventually("the node has the event "+reason, func() error {
		var list v1.EventList
		if err := json.Unmarshal([]byte(n.Get("/events")), &list); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Reason == reason && e.InvolvedObject.Kind == "Node" &&
				strings.Contains(e.Message, text) {
				return nil
			}
		}
		return fmt.Errorf("there are %d events", len(list.Items))
	})
}

// A cordoned device stays with the container that has it, across kill -9 and whatever its plugin
// does. No other container gets it until it is uncordoned.
func TestDeviceCordon(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	_, stop := n.Plugin(gpu, "--devices=2", "--id-prefix=gpu", "--no-preferred")
	n.Pod("holder", limited("holder", "cpu: 1, memory: 1Gi, example.com/gpu: 1"))
	n.AwaitPhase("holder-node", v1.PodRunning)

	says(t, n, "example.com/gpu gpu-0 is cordoned; it stays with default/holder-node/main",
		"cordon", gpu, "gpu-0", "--reason", "row remapping pending")
	says(t, n, "example.com/gpu gpu-1 is cordoned", "cordon", gpu, "gpu-1")
	says(t, n, "gpu-1 was cordoned already", "cordon", gpu, "gpu-1")
	says(t, n, "gpu-7 is cordoned; no plugin lists it now", "cordon", gpu, "gpu-7")
	awaitNoted(n, "DeviceCordoned", "default/holder-node/main keeps it: row remapping pending")

	seen := func() {
		t.Helper()
		says(t, n, "gpu-0 Healthy - default/holder-node/main", "list", gpu)
		says(t, n, "ago: row remapping pending", "list")
		says(t, n, "gpu-7 Absent", "list")
		awaitNumbers(n, 2, 0)
		if text := n.Get("/podresources/allocatable"); strings.Contains(text, "gpu-1") {
			t.Errorf("podresources says that it is allocatable: %s", text)
		}
		if text := n.Get("/plugins"); !strings.Contains(text, `"cordoned": 2`) {
			t.Errorf("/plugins says %s", text)
		}
	}
	seen()
	n.Pod("other", limited("other", "cpu: 1, memory: 1Gi, example.com/gpu: 1"))
	st := n.AwaitPhase("other-node", v1.PodFailed).Status
	if !strings.Contains(st.Message, "Available: 0; 2 devices are cordoned") {
		t.Errorf("the other pod says %s", st.Message)
	}
	text, err := explainPod(t, n, "other-node")
	for _, want := range []string{
		"1 needed, none is free, 2 cordoned", "2 more cordoned",
		"once the devices of example.com/gpu are uncordoned (numalet device uncordon)",
	} {
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("explain says %s (%v)\nwant %s", text, err, want)
		}
	}
	n.RemovePod("other")

	n.Kill()
	n.Start()
	stop()
	n.Plugin(gpu, "--devices=2", "--id-prefix=gpu", "--no-preferred")
	n.AwaitPhase("holder-node", v1.PodRunning)
	n.Eventually("the plugin is back", func() error {
		if out, err := device(t, n, "list"); err != nil || !strings.Contains(out, "gpu-1 Healthy") {
			return fmt.Errorf("%s: %w", out, err)
		}
		return nil
	})
	seen()
	says(t, n, "example.com/gpu gpu-1 is uncordoned", "uncordon", gpu, "gpu-1")
	says(t, n, "gpu-1 was not cordoned", "uncordon", gpu, "gpu-1")
	awaitNoted(n, "DeviceUncordoned", "Device gpu-1 of example.com/gpu")
	n.Pod("next", limited("next", "cpu: 1, memory: 1Gi, example.com/gpu: 1"))
	n.AwaitPhase("next-node", v1.PodRunning)
	awaitNumbers(n, 2, 1)
}

// Mistakes are reported, and forbidden requests are refused.
func TestDeviceCordonIsRefused(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	if out, err := device(t, n, "cordon", gpu, "gpu-0"); err == nil ||
		!strings.Contains(out, "start it, name its root directory with --root-dir") {
		t.Errorf("without an agent: %s (%v)", out, err)
	}
	path := filepath.Join(n.Root, cordon.FileName)
	if err := os.MkdirAll(n.Root, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(`{"version": "v1", "cordons": [{}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	n.Start()
	awaitNoted(n, "CordonedDevicesQuarantined", "cordon them again")
	long := strings.Repeat("x", 2000)
	for want, args := range map[string][]string{
		"takes a resource and the id of one device":         {"cordon", gpu},
		"resource cpu: no resource of a device plugin":      {"cordon", "cpu", "0"},
		"the reason has 2000 bytes; at most 1024 are kept":  {"cordon", gpu, "0", "--reason", long},
		"the device's id is empty: numalet device list has": {"uncordon", gpu, ""},
	} {
		if out, err := device(t, n, args...); err == nil || !strings.Contains(out, want) {
			t.Errorf("%.40v: %s (%v), want %q", args, out, err, want)
		}
	}
	// The read-only port changes nothing, and only its owner can use the socket.
	resp, err := http.Post(n.URL("/devices/cordon"), "application/json",
		strings.NewReader(`{"resource": "example.com/gpu", "id": "a"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 400 {
		t.Errorf("the read-only port answers %s", resp.Status)
	}
	if info, err := os.Stat(filepath.Join(n.Root, devices.Socket)); err != nil ||
		info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v (%v)", info, err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("something was cordoned")
	}
}

// The node API, to which the API server's proxy connects, accepts a cordon from authorized clients.
func TestDeviceCordonOverNodeAPI(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	api := serveNodeAPI(t, n)
	n.Start()
	for _, tc := range []struct {
		known bool
		path  string
		code  int
	}{
		{false, "/devices/cordon", http.StatusUnauthorized},
		{true, "/devices/cordon", http.StatusOK},
		{false, "/devices/uncordon", http.StatusUnauthorized},
	} {
		resp, err := api.client(tc.known).Post(api.url+tc.path, "application/yaml",
			strings.NewReader(`{"resource": "example.com/gpu", "id": "gpu-5"}`))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != tc.code {
			t.Errorf("%s, known: %v: %s, want %d", tc.path, tc.known, resp.Status, tc.code)
		}
	}
	if code, body := api.ask(true, "GET", "/devices"); code != http.StatusOK ||
		!strings.Contains(body, `"gpu-5"`) {
		t.Errorf("the list is %d %s", code, body)
	}
}
