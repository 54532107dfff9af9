package cluster_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

const objects = `
{apiVersion: v1, kind: ConfigMap, metadata: {name: cfg}, data: {color: red, size: "7"}}
---
{apiVersion: v1, kind: Secret, metadata: {name: key}, stringData: {password: s3cret}}
---
{apiVersion: v1, kind: Service, metadata: {name: web-ui}, spec: {ports: [{port: 80}]}}
`

// consumer returns a pod that uses objects in every way; more names a further config map in its
// environment.
func consumer(node, name, more string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {tier: front}}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 1
  tolerations: [{operator: Exists}]
  volumes:
  - {name: cfg, configMap: {name: cfg, items: [{key: color, path: deep/color}]}}
  - {name: key, secret: {secretName: key, defaultMode: 0400}}
  - {name: me, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
  - {name: maybe, configMap: {name: none, optional: true}}
  containers:
  - name: main
    image: registry.test/work:1
    envFrom: [{prefix: CFG_, configMapRef: {name: cfg}}%s]
    env:
    - {name: PASSWORD, valueFrom: {secretKeyRef: {name: key, key: password}}}
    - {name: SAID, value: "$(PASSWORD) $(CFG_size) $(WEB_UI_SERVICE_PORT)"}
    volumeMounts:
    - {name: cfg, mountPath: /cfg}
    - {name: key, mountPath: /key}
    - {name: me, mountPath: /me}
    - {name: maybe, mountPath: /maybe}
`, name, node, more)
}

// fileIn returns what a reader finds in a volume of a pod.
func fileIn(n rig.Node, p *v1.Pod, path string) (string, error) {
	text, err := os.ReadFile(filepath.Join(n.Root, "pods", string(p.UID), "volumes", path))
	return string(text), err
}

func awaitFile(t *testing.T, n rig.Node, p *v1.Pod, path, want string) {
	t.Helper()
	harness.Eventually(t, path+" has "+want, func() error {
		got, err := fileIn(n, p, path)
		if err == nil && got != want {
			err = fmt.Errorf("it has %q", got)
		}
		return err
	})
}

// TestObjectsOfPods: volumes, environment and token of a pod have the API server's content, and
// volumes follow it while the pod runs, even after the agent was killed.
func TestObjectsOfPods(t *testing.T) {
	c, n := ours(t)
	c.Apply(objects)
	c.Apply(consumer(n.Name, "uses", ""))
	p := await(t, c, c.Namespace, "uses", runs)
	const color, labels = "kubernetes.io~configmap/cfg/deep/color",
		"kubernetes.io~downward-api/me/labels"
	for path, want := range map[string]string{
		color: "red", "kubernetes.io~secret/key/password": "s3cret", labels: `tier="front"`,
	} {
		if got, err := fileIn(n, p, path); got != want || err != nil {
			t.Errorf("%s has %q, %v; want %q", path, got, err, want)
		}
	}
	tokenIsOf(t, n, p)
	env := envOf(t, n, p)
	for name, want := range map[string]string{
		"CFG_color": "red", "PASSWORD": "s3cret", "SAID": "s3cret 7 80",
	} {
		if env[name] != want {
			t.Errorf("%s is %q, want %q", name, env[name], want)
		}
	}
	if env["KUBERNETES_SERVICE_HOST"] == "" {
		t.Error("the pod is not told of the API server")
	}
	change := func(to string) {
		c.MustRun("patch", "configmap", "cfg", "--patch", fmt.Sprintf(`{"data": {"color": %q}}`, to))
		c.MustRun("label", "pod", "uses", "--overwrite", "tier="+to)
		awaitFile(t, n, p, color, to)
		awaitFile(t, n, p, labels, fmt.Sprintf("tier=%q", to))
	}
	change("green")
	n.Kill()
	n.Start()
	change("blue")
	if after := await(t, c, c.Namespace, "uses", runs); containerOf(after) != containerOf(p) {
		t.Errorf("container %s became %s", containerOf(p), containerOf(after))
	}
	c.MustRun("delete", "pod", "uses", "--timeout=1m")
	if _, err := os.Stat(filepath.Join(n.Root, "pods", string(p.UID))); !os.IsNotExist(err) {
		t.Errorf("the directory of a pod that is gone: %v", err)
	}
}

// tokenIsOf checks that the pod's token is bound to it, and that the files a client needs are
// beside it.
func tokenIsOf(t *testing.T, n rig.Node, p *v1.Pod) {
	t.Helper()
	dir := ""
	for _, v := range p.Spec.Volumes {
		if v.Projected != nil {
			dir = "kubernetes.io~projected/" + v.Name + "/"
		}
	}
	token, err := fileIn(n, p, dir+"token")
	if err != nil {
		t.Fatal(err)
	}
	var claims struct {
		Kubernetes struct {
			Pod struct{ Name, UID string }
		} `json:"kubernetes.io"`
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("the token has %d parts", len(parts))
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(text, &claims) != nil ||
		claims.Kubernetes.Pod.UID != string(p.UID) {
		t.Errorf("the token says %s, %v", text, err)
	}
	ca, err := fileIn(n, p, dir+"ca.crt")
	if err != nil || !strings.Contains(ca, "BEGIN CERTIFICATE") {
		t.Errorf("ca.crt has %q, %v", ca, err)
	}
	if namespace, err := fileIn(n, p, dir+"namespace"); namespace != p.Namespace {
		t.Errorf("namespace has %q, %v", namespace, err)
	}
}

// TestMissingObjects: a pod waits for the objects of its volumes, and then of its environment, says
// for which, and starts when they exist.
func TestMissingObjects(t *testing.T) {
	c, n := ours(t)
	c.Apply(consumer(n.Name, "lacks", ", {configMapRef: {name: later}}"))
	says := func(want string) {
		t.Helper()
		harness.Eventually(t, "kubectl describe says "+want, func() error {
			text, err := c.Run("describe", "pod", "lacks")
			if err == nil && !strings.Contains(text, want) {
				err = fmt.Errorf("it says %s", text)
			}
			return err
		})
	}
	says(`MountVolume.SetUp failed for volume "cfg" : configmap "cfg" not found`)
	says(`MountVolume.SetUp failed for volume "key" : secret "key" not found`)
	c.Apply(objects)
	await(t, c, c.Namespace, "lacks", func(p *v1.Pod) bool {
		for _, s := range p.Status.ContainerStatuses {
			if w := s.State.Waiting; w != nil && w.Reason == "CreateContainerConfigError" {
				return strings.HasSuffix(w.Message, `configmap "later" not found`)
			}
		}
		return false
	})
	c.MustRun("create", "configmap", "later", "--from-literal=x=y")
	await(t, c, c.Namespace, "lacks", runs)
}

// TestVolumesThatAreGone: a pod with a volume of a type that no version supports is refused at once, and
// its status and event say what to use.
func TestVolumesThatAreGone(t *testing.T) {
	c, n := ours(t)
	claims := strings.Replace(consumer(n.Name, "claims", ""),
		"{name: maybe, configMap: {name: none, optional: true}}",
		"{name: maybe, flexVolume: {driver: example.com/lvm}}", 1)
	c.Apply(claims)
	harness.Eventually(t, "kubectl describe says what to use", func() error {
		text, err := c.Run("describe", "pod", "claims")
		if err != nil {
			return err
		}
		const want = `volume "maybe": a volume of type flexVolume is not supported, and the pod does not start: ` +
			"Kubernetes has deprecated it; use the CSI driver"
		if strings.Count(text, want) < 2 { // in the status, and in an event
			return fmt.Errorf("it lacks %s: %s", want, text)
		}
		return nil
	})
	if p, err := get(t, c, c.Namespace, "claims"); err != nil || p.Status.Phase != v1.PodFailed ||
		p.Status.Reason != "VolumeNotSupported" {
		t.Errorf("the pod is %v, %v, %v", p.Status.Phase, p.Status.Reason, err)
	}
}

// envOf returns the environment of the pod's container in the runtime.
func envOf(t *testing.T, n rig.Node, p *v1.Pod) map[string]string {
	t.Helper()
	c, ok := n.Runtime.State().Container(p.Name, "main")
	if !ok {
		t.Fatalf("the runtime has no container of pod %s", p.Name)
	}
	return c.Env()
}
