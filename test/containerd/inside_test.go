package containerd_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/containerd/workload"
)

const cdiSpec = `{"cdiVersion": "0.6.0", "kind": "example.com/gpu", "devices": [
  {"name": "gpu-0", "containerEdits": {"env": ["CDI_DEVICE=gpu-0"], "deviceNodes": [
    {"path": "/dev/cdi-gpu", "hostPath": "/dev/zero"}]}},
  {"name": "gpu-1", "containerEdits": {"env": ["CDI_DEVICE=gpu-1"], "deviceNodes": [
    {"path": "/dev/cdi-gpu", "hostPath": "/dev/zero"}]}}
]}`

// TestInside: containers report what they see, which is their assignment and nothing else.
func TestInside(t *testing.T) {
	w := newWorld(t)
	library := filepath.Join(w.Dir, "library")
	if err := os.WriteFile(library, []byte("lib"), 0o644); err != nil {
		t.Fatal(err)
	}
	err := os.WriteFile(filepath.Join(w.daemon.CDIDir(), "gpu.json"), []byte(cdiSpec), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	w.Start()
	w.Plugin("example.com/gpu", "--devices=2", "--nodes=0", "--cdi-kind=example.com/gpu",
		"--device-path=/dev/null:/dev/sim-gpu:rw", "--mount="+library+":/opt/library:ro",
		"--annotation=example.com/told=yes")
	for name, test := range map[string]func(*testing.T, world){
		"devices":   testDevices,
		"none":      testNoDevices,
		"env":       testEnv,
		"volumes":   testVolumes,
		"identity":  testIdentity,
		"host":      testHostNamespaces,
		"network":   testPodNetwork,
		"exclusive": testExclusiveInside,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, w.as(t))
		})
	}
}

func hasDevice(r workload.Report, path string, major, minor uint32) bool {
	return slices.Contains(r.Devices,
		workload.Device{Path: path, Type: "c", Major: major, Minor: minor})
}

// mountOf returns the line of /proc/self/mountinfo of a mount point; "" if there is none.
func mountOf(r workload.Report, point string) string {
	for _, line := range r.Mounts {
		if fields := strings.Fields(line); fields[4] == point {
			return line
		}
	}
	return ""
}

func testDevices(t *testing.T, w world) {
	pod := w.run("devices", simple("--print", `resources: {limits: {example.com/gpu: "1"}}`))
	r := w.report(pod, "main")
	rows, err := w.Placements()
	if err != nil {
		t.Fatal(err)
	}
	ids := rows[pod.Name+"/main"].Devices["example.com/gpu"]
	if len(ids) != 1 {
		t.Fatalf("devices %v, want one", ids)
	}
	if got := r.Env["SIM_GPU_VISIBLE_DEVICES"]; got != ids[0] {
		t.Errorf("the plugin's variable is %q, want %q", got, ids[0])
	}
	if !hasDevice(r, "/dev/sim-gpu", 1, 3) {
		t.Errorf("the plugin's device node is missing: %v", r.Devices)
	}
	if line := mountOf(r, "/opt/library"); !strings.Contains(line, " ro,") {
		t.Errorf("the plugin's mount is %q, want a read-only one", line)
	}
	if !hasDevice(r, "/dev/cdi-gpu", 1, 5) || r.Env["CDI_DEVICE"] != ids[0] {
		t.Errorf("CDI gave %q and devices %v", r.Env["CDI_DEVICE"], r.Devices)
	}
	annotations := w.inRuntime(pod, "main").Annotations
	if annotations["example.com/told"] != "yes" {
		t.Errorf("the plugin's annotation is missing: %v", annotations)
	}
}

func testNoDevices(t *testing.T, w world) {
	r := w.report(w.run("none", simple("--print")), "main")
	for _, d := range r.Devices {
		if strings.Contains(d.Path, "gpu") {
			t.Errorf("a container without devices has %v", d)
		}
	}
	if _, ok := r.Env["SIM_GPU_VISIBLE_DEVICES"]; ok || mountOf(r, "/opt/library") != "" {
		t.Error("a container without devices has the variable or the mount of the plugin")
	}
}

func testEnv(t *testing.T, w world) {
	pod := w.run("env", `
  containers:
  - name: main
    image: IMAGE
    args: [--print, --out=, $(GREETING), $$(GREETING), $(NOBODY)]
    env:
    - {name: GREETING, value: hello}
    - {name: TWICE, value: "$(GREETING) $(GREETING)"}
    - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    - {name: TIER, valueFrom: {fieldRef: {fieldPath: "metadata.labels['tier']"}}}
    - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}
    resources: {limits: {memory: 64Mi}}`, `labels: {tier: front}`)
	r := w.report(pod, "main")
	for name, want := range map[string]string{
		"GREETING": "hello", "TWICE": "hello hello", "POD": pod.Name, "UID": string(pod.UID),
		"NODE": "node", "TIER": "front", "IP": pod.Status.PodIP, "MEMORY": "64", "PATH": "/bin:/",
	} {
		if r.Env[name] != want {
			t.Errorf("%s=%q, want %q", name, r.Env[name], want)
		}
	}
	args := []string{"hello", "$(GREETING)", "$(NOBODY)"}
	if !slices.Equal(r.Args[len(r.Args)-3:], args) {
		t.Errorf("arguments %q", r.Args)
	}
}

func testVolumes(t *testing.T, w world) {
	shown := filepath.Join(w.Dir, "shown")
	if err := os.MkdirAll(filepath.Join(shown, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	pod := w.run("volumes", fmt.Sprintf(`
  volumes:
  - {name: both, emptyDir: {}}
  - {name: memory, emptyDir: {medium: Memory, sizeLimit: 8Mi}}
  - {name: host, hostPath: {path: %s, type: Directory}}
  - {name: image, image: {reference: IMAGE, pullPolicy: Never}}
  securityContext: {fsGroup: 4711}
  containers:
  - name: one
    image: IMAGE
    args: [--print, --out=/both/one]
    volumeMounts:
    - {name: both, mountPath: /both}
  - name: two
    image: IMAGE
    args: [--print]
    volumeMounts:
    - {name: both, mountPath: /both, readOnly: true}
    - {name: memory, mountPath: /memory}
    - {name: host, mountPath: /host, subPath: sub}
    - {name: image, mountPath: /image}
    - {name: image, mountPath: /part, subPath: tmp}
  - name: three
    image: IMAGE
    args: [--out=/host/three]
    volumeMounts:
    - {name: host, mountPath: /host}`, shown))
	r := w.report(pod, "two")
	if line := mountOf(r, "/both"); !strings.Contains(line, " ro,") {
		t.Errorf("/both in two is %q, want a read-only mount", line)
	}
	if line := mountOf(r, "/memory"); !strings.Contains(line, "tmpfs") ||
		!strings.Contains(line, "size=8192k") {
		t.Errorf("/memory is %q, want a tmpfs of 8 MiB", line)
	}
	if line := mountOf(r, "/host"); !strings.Contains(line, "/sub ") {
		t.Errorf("/host is %q, want the folder sub", line)
	}
	if line := mountOf(r, "/image"); !strings.Contains(line, " ro,") ||
		!strings.Contains(line, "/ /image ") {
		t.Errorf("/image is %q, want an image that cannot be written", line)
	}
	if line := mountOf(r, "/part"); !strings.Contains(line, "/tmp /part ") {
		t.Errorf("/part is %q, want the image's folder tmp", line)
	}
	if mountOf(r, "/etc/hosts") == "" || mountOf(r, "/dev/termination-log") == "" {
		t.Errorf("no hosts file or termination log in %q", r.Mounts)
	}
	both := filepath.Join(w.Root, "pods", string(pod.UID), "volumes/kubernetes.io~empty-dir/both")
	for _, file := range []string{filepath.Join(shown, "three"), filepath.Join(both, "one")} {
		w.Eventually(file+" is written", func() error {
			_, err := os.Stat(file)
			return err
		})
	}
	w.remove("volumes")
	if _, err := os.Stat(filepath.Join(shown, "three")); err != nil {
		t.Errorf("the host's files went with the pod: %v", err)
	}
}

func testIdentity(t *testing.T, w world) {
	pod := w.run("identity", `
  hostname: someone
  securityContext:
    runAsUser: 65534
    runAsGroup: 65533
    supplementalGroups: [4712]
    fsGroup: 4711
  containers:
  - name: main
    image: IMAGE
    args: [--print, --message=hello, --exit=0, --after=1h]
    securityContext: {readOnlyRootFilesystem: true, runAsNonRoot: true}`)
	r := w.report(pod, "main")
	if r.User.UID != 65534 || r.User.GID != 65533 || !slices.Contains(r.User.Groups, 4711) ||
		!slices.Contains(r.User.Groups, 4712) {
		t.Errorf("it runs as %+v", r.User)
	}
	if r.Hostname != "someone" || r.PID != 1 {
		t.Errorf("host name %q, pid %d", r.Hostname, r.PID)
	}
	if line := mountOf(r, "/"); !strings.Contains(line, " ro,") {
		t.Errorf("the root is %q, want a read-only one", line)
	}
	if r.OOMScoreAdj != "1000" {
		t.Errorf("oom_score_adj %s, want 1000 as for any BestEffort pod", r.OOMScoreAdj)
	}
}

func testHostNamespaces(t *testing.T, w world) {
	pod := w.run("host", "hostNetwork: true\n  hostPID: true\n  "+simple("--print"))
	r := w.report(pod, "main")
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if r.Hostname != name || r.PID == 1 {
		t.Errorf("host name %q, pid %d, want the host's %q and a pid of the host",
			r.Hostname, r.PID, name)
	}
	if pod.Status.HostIP == "" || pod.Status.PodIP != pod.Status.HostIP {
		t.Errorf("pod IP %q, host IP %q: want the same", pod.Status.PodIP, pod.Status.HostIP)
	}
}

func testPodNetwork(t *testing.T, w world) {
	one, two := w.run("network", simple("--print")), w.run("network-2", simple("--print"))
	for _, pod := range []v1.Pod{one, two} {
		ip := net.ParseIP(pod.Status.PodIP)
		if ip == nil || pod.Status.PodIP == pod.Status.HostIP {
			t.Errorf("pod %s has IP %q", pod.Name, pod.Status.PodIP)
		}
	}
	if one.Status.PodIP == two.Status.PodIP {
		t.Errorf("two pods have IP %s", one.Status.PodIP)
	}
	if r := w.report(one, "main"); r.Hostname != one.Name {
		t.Errorf("host name %q, want the pod's name", r.Hostname)
	}
}

func testExclusiveInside(t *testing.T, w world) {
	needsCPUs(t, 2)
	pod := w.run("alone", simple("--print", `resources: {limits: {cpu: "1", memory: 64Mi}}`))
	r := w.report(pod, "main")
	rows, err := w.Placements()
	if err != nil {
		t.Fatal(err)
	}
	row := rows[pod.Name+"/main"]
	if !row.Exclusive || r.CPUs != row.CPUs {
		t.Errorf("it may run on %s; assigned: %+v", r.CPUs, row)
	}
	if r.Mems == "" || row.MemoryNodes != "0" {
		t.Errorf("its memory is on %q; assigned: %q", r.Mems, row.MemoryNodes)
	}
}
