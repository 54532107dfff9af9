package test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/manifest"
	"github.com/numalet/numalet/test/harness"
)

// repeated returns a YAML list in flow style of n elements, with each element's number in place of
// N.
func repeated(n int, element string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.ReplaceAll(element, "N", fmt.Sprint(i)) + ", ")
	}
	return "[" + b.String() + "]"
}

// hostileManifests returns manifests that request endless work, each with a part of its expected
// error.
func hostileManifests() map[string][2]string {
	env := "{name: A0, value: " + strings.Repeat("x", 100) + "}"
	for i := range 8 {
		env += fmt.Sprintf(", {name: A%d, value: %s}", i+1,
			strings.Repeat(fmt.Sprintf("$(A%d)", i), 10))
	}
	unknown := strings.Repeat("  x: 1\n", 1_000_000)
	json := `{"apiVersion": "v1", "kind": "Pod", ` + strings.Repeat(`"a": 1, `, 700_000) + `"b": 1}`
	return map[string][2]string{
		"bomb.yaml": {manifestOf("bomb", "containers: [{name: a, image: b, env: ["+env+"]}]"),
			"spec.containers[0].env[4]: Too long"},
		"containers.yaml": {manifestOf("containers", "containers: "+
			repeated(20_000, "{name: cN, image: i}")), "spec.containers: Too many: 20000"},
		"variables.yaml": {manifestOf("variables", "containers: [{name: a, image: b, env: "+
			repeated(250_000, "{name: VN}")+"}]"), "YAML of more than"},
		"unknown.yaml": {manifestOf("unknown", "containers: []\n") + unknown, "YAML of more than"},
		"values.json":  {json, "holds 70000"},
		"cpu.yaml": {manifestOf("cpu", "containers: [{name: a, image: b, resources: {limits: "+
			"{cpu: 1e18}}}]"), "spec.containers[0].resources.limits[cpu]"},
	}
}

// linkManifests makes manifests that are links to endless files.
func linkManifests(t *testing.T, n *harness.Node) {
	t.Helper()
	pipe := filepath.Join(n.Dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"kmsg.yaml": "/proc/kmsg", "pipe.yaml": pipe,
		"zero.yaml": "/dev/zero"} {
		if err := os.Symlink(target, filepath.Join(n.Manifests, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// Manifests that request endless work are refused by name, each from its own file. Other pods start
// beside them, also after a restart with all these manifests, and the agent stops when it is told
// to.
func TestHostileManifests(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Settings["fileCheckFrequency"] = "200ms"
	n.Start()
	linkManifests(t, n)
	bad := hostileManifests()
	for name, b := range bad {
		put(t, n, name, b[0])
	}
	for name, b := range bad {
		n.Eventually(name+" is refused", func() error {
			if p := awaitProblem(n, "/"+name); !strings.Contains(p.Message, b[1]) {
				return fmt.Errorf("problem %+v, want %q", p, b[1])
			}
			return nil
		})
	}
	for _, name := range []string{"kmsg.yaml", "pipe.yaml", "zero.yaml"} {
		awaitProblem(n, "/"+name)
	}
	n.Pod("good", plain("good"))
	n.AwaitPhase("good-node", v1.PodRunning)
	if err := n.Stop(); err != nil {
		t.Fatalf("stop: %v", err)
	}
	n.Start()
	n.Pod("more", plain("more"))
	n.AwaitPhase("more-node", v1.PodRunning)
	n.AwaitPhase("good-node", v1.PodRunning)
	if got := n.Get("/healthz"); got != "ok" {
		t.Errorf("/healthz: %q", got)
	}
}

// An unknown field is ignored and reported. With --refuse-unknown-fields the pod is refused.
func TestUnknownField(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	n.Pod("a", strings.Replace(plain("a"), "spec:", "spec:\n  restartPolcy: Never", 1))
	n.AwaitPhase("a-node", v1.PodRunning)
	p := awaitProblem(n, "/a.yaml")
	if p.Reason != manifest.IgnoredField || !strings.HasPrefix(p.Message, "ignored field: spec.") {
		t.Errorf("problem %+v", p)
	}
	if got := logged(t, n, "Manifest refused", "a.yaml"); got != 0 {
		t.Errorf("the log says %d times that it is refused", got)
	}
}

// A pod is identified by its UID and its name. If a manifest with a UID gets another name, it is
// another pod, which starts once the first is gone, also if the agent did not run meanwhile.
func TestRenamedUnderItsUID(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	named := func(name string) string {
		return strings.Replace(plain(name), "metadata:\n", "metadata:\n  uid: fixed\n", 1)
	}
	if !strings.Contains(named("one"), "uid: fixed") {
		t.Fatalf("no uid in %s", named("one"))
	}
	runsOnly := func(name string) {
		t.Helper()
		n.AwaitPhase(name+"-node", v1.PodRunning)
		n.Eventually("the runtime has "+name+" and nothing else", func() error {
			pods, err := n.Pods()
			if err != nil || len(pods) != 1 {
				return errors.Join(err, fmt.Errorf("%d pods are listed", len(pods)))
			}
			created := calls(n, call{method: "CreateContainer", pod: name + "-node"})
			if len(created) != 1 {
				return fmt.Errorf("%d containers were created for it", len(created))
			}
			return nil
		})
	}
	put(t, n, "pod.yaml", named("one"))
	runsOnly("one")
	put(t, n, "pod.yaml", named("two"))
	runsOnly("two")
	if got := len(calls(n, call{method: "RemovePodSandbox", pod: "one-node"})); got == 0 {
		t.Error("the sandbox of the first is still there")
	}
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	put(t, n, "pod.yaml", named("three"))
	n.Start()
	runsOnly("three")
	if got := len(calls(n, call{method: "RemovePodSandbox", pod: "two-node"})); got == 0 {
		t.Error("the sandbox of the second is still there")
	}
}
