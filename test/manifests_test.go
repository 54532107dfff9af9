package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/test/harness"
)

func TestEnvAndCommand(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	n.Pod("env", `apiVersion: v1
kind: Pod
metadata:
  name: env
  namespace: team
  labels: {app: web}
  annotations: {note: hello}
spec:
  containers:
  - name: main
    image: sim.local/app
    workingDir: /srv
    command: [serve, "$(GREETING)", "$$(GREETING)", "$(NOBODY)"]
    args: ["--pod=$(POD)"]
    resources: {requests: {cpu: 250m, memory: 64Mi}, limits: {memory: 128Mi}}
    env:
    - {name: WHO, value: world}
    - {name: GREETING, value: "hello $(WHO)"}
    - {name: EARLY, value: "$(LATE)"}
    - {name: LATE, value: late}
    - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
    - {name: UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
    - {name: APP, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app']"}}}
    - {name: NOTE, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['note']"}}}
    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: HOST, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
    - {name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}
    - {name: MILLI, valueFrom: {resourceFieldRef: {resource: requests.cpu, divisor: 1m}}}
`)
	pod := n.AwaitPhase("env-node", v1.PodRunning)
	main := container(t, n, "env-node", "main")
	got := main.Env()
	want := map[string]string{
		"WHO": "world", "GREETING": "hello world", "EARLY": "$(LATE)", "LATE": "late",
		"POD": "env-node", "NAMESPACE": "team", "UID": string(pod.UID), "APP": "web",
		"NOTE": "hello", "NODE": "node", "IP": pod.Status.PodIP, "HOST": pod.Status.HostIP,
		"MEMORY": "128", "MILLI": "250",
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("env %s is %q, want %q", name, got[name], value)
		}
	}
	wantCommand := []string{"serve", "hello world", "$(GREETING)", "$(NOBODY)"}
	if diff := cmp.Diff(wantCommand, main.Config.GetCommand()); diff != "" {
		t.Errorf("command (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"--pod=env-node"}, main.Config.GetArgs()); diff != "" {
		t.Errorf("args (-want +got):\n%s", diff)
	}
	if dir := main.Config.GetWorkingDir(); dir != "/srv" {
		t.Errorf("working directory %q", dir)
	}
	linux := main.Resources
	if linux.GetCpuShares() != 256 || linux.GetMemoryLimitInBytes() != 128<<20 {
		t.Errorf("resources %+v, want 256 shares and 128 MiB", linux)
	}
	for key, value := range map[string]string{
		"io.kubernetes.pod.name": "env-node", "io.kubernetes.pod.namespace": "team",
		"io.kubernetes.pod.uid": string(pod.UID), "io.kubernetes.container.name": "main",
	} {
		if main.Config.GetLabels()[key] != value {
			t.Errorf("label %s is %q, want %q", key, main.Config.GetLabels()[key], value)
		}
	}
}

func TestVolumes(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	host := filepath.Join(n.Dir, "host")
	if err := os.MkdirAll(filepath.Join(host, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	n.Pod("app", manifestOf("app", fmt.Sprintf(`volumes:
  - {name: scratch, emptyDir: {}}
  - {name: host, hostPath: {path: %[1]s, type: Directory}}
  - {name: made, hostPath: {path: %[1]s/made, type: DirectoryOrCreate}}
  containers:
  - name: main
    image: sim.local/app
    volumeMounts:
    - {name: scratch, mountPath: /scratch}
    - {name: scratch, mountPath: /part, subPath: a/b}
    - {name: host, mountPath: /host, readOnly: true}
    - {name: made, mountPath: /made}`, host)))
	n.Pod("wrong", manifestOf("wrong", `volumes:
  - {name: host, hostPath: {path: /none/at/all, type: Directory}}
  containers:
  - {name: main, image: sim.local/app, volumeMounts: [{name: host, mountPath: /host}]}`))
	pod := n.AwaitPhase("app-node", v1.PodRunning)
	main := container(t, n, "app-node", "main")
	mounts := map[string]*runtimeapi.Mount{}
	for _, m := range main.Config.GetMounts() {
		mounts[m.GetContainerPath()] = m
	}
	podDir := filepath.Join(n.Root, "pods", string(pod.UID))
	if m := mounts["/host"]; m.GetHostPath() != host || !m.GetReadonly() {
		t.Errorf("mount of the hostPath: %+v", m)
	}
	for _, where := range []string{"/scratch", "/part", "/etc/hosts", "/dev/termination-log"} {
		m := mounts[where]
		if !strings.HasPrefix(m.GetHostPath(), podDir) || m.GetReadonly() {
			t.Errorf("mount %s: %+v, want one below %s", where, m, podDir)
			continue
		}
		if _, err := os.Stat(m.GetHostPath()); err != nil {
			t.Errorf("mount %s: %v", where, err)
		}
	}
	if info, err := os.Stat(filepath.Join(host, "made")); err != nil || !info.IsDir() {
		t.Errorf("DirectoryOrCreate made nothing: %v", err)
	}
	awaitPod(n, "wrong-node", func(pod v1.Pod) error {
		for _, c := range pod.Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil && strings.Contains(w.Message, "/none/at/all") {
				return nil
			}
		}
		return fmt.Errorf("nothing names the missing path: %+v", pod.Status)
	})

	precious := filepath.Join(host, "data", "precious")
	if err := os.WriteFile(precious, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"app", "wrong"} {
		n.RemovePod(name)
		n.AwaitGone(name + "-node")
	}
	absent(t, podDir)
	if _, err := os.Stat(precious); err != nil {
		t.Errorf("a file of the host went with the pod: %v", err)
	}
}

func TestSecurityAndNamespaces(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	n.Pod("safe", manifestOf("safe", `securityContext:
    {runAsUser: 1000, runAsGroup: 1001, fsGroup: 2000, supplementalGroups: [3000]}
  containers:
  - name: main
    image: sim.local/app
    securityContext:
      runAsUser: 1234
      readOnlyRootFilesystem: true
      allowPrivilegeEscalation: false
      capabilities: {add: [NET_ADMIN], drop: [ALL]}
      seccompProfile: {type: RuntimeDefault}
  - name: other
    image: sim.local/app`))
	n.Pod("host", manifestOf("host", `hostNetwork: true
  hostPID: true
  hostIPC: true
  containers:
  - {name: main, image: sim.local/app, securityContext: {privileged: true}}`))
	n.Pod("root", manifestOf("root",
		`containers: [{name: main, image: sim.local/app, securityContext: {runAsNonRoot: true}}]`))
	n.AwaitPhase("safe-node", v1.PodRunning)
	host := n.AwaitPhase("host-node", v1.PodRunning)

	main := container(t, n, "safe-node", "main").Config.GetLinux().GetSecurityContext()
	if main.GetRunAsUser().GetValue() != 1234 || main.GetRunAsGroup().GetValue() != 1001 ||
		!main.GetReadonlyRootfs() || !main.GetNoNewPrivs() || main.GetPrivileged() {
		t.Errorf("security context of main: %+v", main)
	}
	caps := main.GetCapabilities()
	if diff := cmp.Diff([]string{"NET_ADMIN"}, caps.GetAddCapabilities()); diff != "" {
		t.Errorf("capabilities added (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"ALL"}, caps.GetDropCapabilities()); diff != "" {
		t.Errorf("capabilities dropped (-want +got):\n%s", diff)
	}
	if got := main.GetSeccomp().GetProfileType(); got != runtimeapi.SecurityProfile_RuntimeDefault {
		t.Errorf("seccomp profile %v", got)
	}
	other := container(t, n, "safe-node", "other").Config.GetLinux().GetSecurityContext()
	if other.GetRunAsUser().GetValue() != 1000 {
		t.Errorf("the pod's user did not reach container other: %+v", other)
	}
	for _, sb := range n.Runtime.State().Sandboxes {
		options := sb.Config.GetLinux().GetSecurityContext().GetNamespaceOptions()
		want := runtimeapi.NamespaceMode_POD
		pid := runtimeapi.NamespaceMode_CONTAINER
		if sb.Pod == "host-node" {
			want, pid = runtimeapi.NamespaceMode_NODE, runtimeapi.NamespaceMode_NODE
		}
		if options.GetNetwork() != want || options.GetIpc() != want || options.GetPid() != pid {
			t.Errorf("namespaces of %s: %+v", sb.Pod, options)
		}
	}
	security := container(t, n, "host-node", "main").Config.GetLinux().GetSecurityContext()
	if !security.GetPrivileged() {
		t.Error("the privileged container is not")
	}
	if host.Status.PodIP != host.Status.HostIP {
		t.Errorf("a pod in the host's network has IP %q, the host has %q", host.Status.PodIP,
			host.Status.HostIP)
	}
	why := awaitReason(n, "root-node", "CreateContainerConfigError")
	if !strings.HasPrefix(why.Message, "container has runAsNonRoot and image will run as root") {
		t.Errorf("message %q", why.Message)
	}
}

func TestLogPath(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	quickRestarts(n)
	n.Start()
	n.Pod("app", plain("app", "main: exit=1 after=1ms attempts=1"))
	awaitContainer(n, "app-node", "main", func(c crisim.Container) error {
		if c.Subject.Attempt != 1 || !c.Running() {
			return fmt.Errorf("attempt %d is %s", c.Subject.Attempt, c.State)
		}
		return nil
	})
	main := container(t, n, "app-node", "main")
	if got := main.Config.GetLogPath(); got != "main/1.log" {
		t.Errorf("log path %q, want main/1.log", got)
	}
	dir := filepath.Join(n.Dir, "logs", "default_app-node_"+main.Subject.UID)
	for _, name := range []string{"0.log", "1.log"} { // the runtime creates the file a moment later
		n.Eventually("there is the log of an attempt", func() error {
			_, err := os.Stat(filepath.Join(dir, "main", name))
			return err
		})
	}
}

func TestImages(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	if err := n.Runtime.SetMissing([]string{"sim.local/late:*"}); err != nil {
		t.Fatal(err)
	}
	n.Start()
	pod := func(name, image, policy string) {
		n.Pod(name, manifestOf(name, fmt.Sprintf(
			"containers: [{name: main, image: %q, imagePullPolicy: %s}]", image, policy)))
	}
	pod("late", "sim.local/late:v1", "IfNotPresent")
	pod("never", "sim.local/absent:v1", "Never")
	pod("invalid", "sim.local/UPPER:v1", "Always")
	pod("always", "sim.local/app:v1", "Always")
	n.AwaitPhase("always-node", v1.PodRunning)

	never := awaitReason(n, "never-node", "ErrImageNeverPull")
	const absentImage = `Container image "sim.local/absent:v1" ` +
		`is not present with pull policy of Never`
	if never.Message != absentImage {
		t.Errorf("message %q, want %q", never.Message, absentImage)
	}
	awaitReason(n, "invalid-node", "InvalidImageName")
	backOff := awaitReason(n, "late-node", "ImagePullBackOff")
	if !strings.HasPrefix(backOff.Message, `Back-off pulling image "sim.local/late:v1"`) {
		t.Errorf("message %q", backOff.Message)
	}
	if err := n.Runtime.SetMissing(nil); err != nil {
		t.Fatal(err)
	}
	n.AwaitPhase("late-node", v1.PodRunning)
	pulls := calls(n, call{method: "PullImage", pod: "late-node"})
	if len(pulls) < 2 || pulls[0].Error == "" || pulls[1].At.Sub(pulls[0].At) < 10*time.Second {
		t.Errorf("pulls: %+v; want the second at least 10 s after the first", pulls)
	}
	for _, name := range []string{"never-node", "invalid-node"} {
		if got := calls(n, call{method: "PullImage", pod: name}); len(got) != 0 {
			t.Errorf("pod %s was pulled for: %+v", name, got)
		}
	}
}
