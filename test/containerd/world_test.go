// Package containerd_test drives the built binary on a real containerd: what containers see of the
// machine from inside, and what the kernel says of them from outside.
package containerd_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/mount-utils"

	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
	"github.com/numalet/numalet/cmd/numalet-lab/containerd/workload"
	"github.com/numalet/numalet/test/containerd/rig"
	"github.com/numalet/numalet/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// world is a node on a containerd of its own, below a cgroup of its own.
type world struct {
	t *testing.T
	*harness.Node
	daemon *containerd.Daemon
	// cgroup is the node's cgroupRoot.
	cgroup string
}

// newWorld starts a containerd; the agent does not run yet. The test's end removes everything and
// fails where the agent has left anything.
func newWorld(t *testing.T) world {
	t.Helper()
	n, d, cgroup := rig.Node(t)
	w := world{t: t, Node: n, daemon: d, cgroup: cgroup}
	w.Settings["podPidsLimit"] = 500
	t.Cleanup(w.leave)
	return w
}

// as returns the world for a subtest.
func (w world) as(t *testing.T) world {
	w.t, w.Node = t, w.Node.As(t)
	return w
}

// leave removes all pods, and checks that the agent has left nothing.
func (w world) leave() {
	if w.t.Failed() {
		w.unmount() // or the host's files, mounted there, would be deleted with the directory
		return
	}
	defer w.unmount()
	names, err := filepath.Glob(filepath.Join(w.Manifests, "*.yaml"))
	if err != nil {
		w.t.Error(err)
	}
	for _, name := range names {
		w.RemovePod(strings.TrimSuffix(filepath.Base(name), ".yaml"))
	}
	w.Eventually("all pods are gone", func() error {
		pods, err := w.Pods()
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("there are %d", len(pods))
		}
		return err
	})
	w.Eventually("nothing of the pods is left", w.nothingLeft)
}

func (w world) nothingLeft() error {
	var errs []error
	for _, pattern := range []string{
		filepath.Join(w.Root, "pods", "*"),
		filepath.Join(w.Dir, "logs", "*"),
		filepath.Join("/sys/fs/cgroup/*", w.cgroup, "kubepods/pod*"),
		filepath.Join("/sys/fs/cgroup/*", w.cgroup, "kubepods/*/pod*"),
		filepath.Join("/sys/fs/cgroup", w.cgroup, "kubepods/pod*"),
		filepath.Join("/sys/fs/cgroup", w.cgroup, "kubepods/*/pod*"),
	} {
		left, err := filepath.Glob(pattern)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("left: %v", left)
		}
		errs = append(errs, err)
	}
	for _, m := range w.mounts() {
		errs = append(errs, fmt.Errorf("left: a mount at %s", m))
	}
	return errors.Join(errs...)
}

// mounts returns the mounts in the node's directory.
func (w world) mounts() (out []string) {
	all, err := mount.New("").List()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, m := range all {
		if strings.HasPrefix(m.Path, w.Dir+"/") {
			out = append(out, m.Path)
		}
	}
	return out
}

func (w world) unmount() {
	for _, m := range slices.Backward(w.mounts()) {
		if err := unix.Unmount(m, unix.MNT_DETACH); err != nil {
			w.t.Errorf("unmount %s: %v", m, err)
		}
	}
}

// create writes the manifest of a pod; IMAGE in it is the image of workload.
func (w world) create(name, spec string, metadata ...string) {
	w.t.Helper()
	text := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata:\n  name: %s\n", name)
	for _, line := range metadata {
		text += "  " + line + "\n"
	}
	text += "spec:\n  " + strings.TrimSpace(spec) + "\n"
	w.Pod(name, strings.ReplaceAll(text, "IMAGE", containerd.WorkImage))
}

// run creates a pod and waits until it runs.
func (w world) run(name, spec string, metadata ...string) v1.Pod {
	w.t.Helper()
	w.create(name, spec, metadata...)
	return w.AwaitPhase(name+"-node", v1.PodRunning)
}

// remove removes the manifest and waits until the pod is gone.
func (w world) remove(name string) {
	w.t.Helper()
	w.RemovePod(name)
	w.AwaitGone(name + "-node")
}

// simple returns the spec of a pod with one container, main, with these arguments and further
// lines.
func simple(args string, lines ...string) string {
	spec := "containers:\n  - name: main\n    image: IMAGE\n    args: [" + args + "]\n"
	for _, line := range lines {
		spec += "    " + line + "\n"
	}
	return spec
}

// logLine is a line of a container's log in the format that CRI runtimes write.
var logLine = regexp.MustCompile(
	`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(?:Z|[+-]\d\d:\d\d) (stdout|stderr) ([FP]) (.*)$`)

// logs returns what the container has written in one of its runs, from the kubelet's place.
func (w world) logs(pod v1.Pod, container string, life int) (string, error) {
	file := filepath.Join(w.Dir, "logs", fmt.Sprintf("%s_%s_%s", pod.Namespace, pod.Name, pod.UID),
		container, fmt.Sprintf("%d.log", life))
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for line := range strings.Lines(string(raw)) {
		parts := logLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if parts == nil {
			return "", fmt.Errorf("%s: not a line of a CRI log: %q", file, line)
		}
		text.WriteString(parts[3])
		if parts[2] == "F" {
			text.WriteByte('\n')
		}
	}
	return text.String(), nil
}

// report waits for the container's report of what it sees.
func (w world) report(pod v1.Pod, container string) (r workload.Report) {
	w.t.Helper()
	w.Eventually("container "+container+" of "+pod.Name+" tells what it sees", func() error {
		text, err := w.logs(pod, container, 0)
		if err != nil {
			return err
		}
		return json.Unmarshal([]byte(text), &r)
	})
	return r
}

// statusOf returns the container's status; the pod must have it.
func (w world) statusOf(pod v1.Pod, container string) v1.ContainerStatus {
	w.t.Helper()
	for _, list := range [][]v1.ContainerStatus{
		pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses,
	} {
		for _, s := range list {
			if s.Name == container {
				return s
			}
		}
	}
	w.t.Fatalf("pod %s has no status of container %s", pod.Name, container)
	return v1.ContainerStatus{}
}

// awaitContainer waits until the container's status is as wanted.
func (w world) awaitContainer(pod, container, what string,
	is func(v1.ContainerStatus) bool) v1.ContainerStatus {
	w.t.Helper()
	var got v1.ContainerStatus
	w.Eventually(fmt.Sprintf("container %s of %s %s", container, pod, what), func() error {
		pods, err := w.Pods()
		if err != nil {
			return err
		}
		p := pods[pod]
		for _, s := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
			if got = s; s.Name == container && is(s) {
				return nil
			}
		}
		return fmt.Errorf("it is %+v", got)
	})
	return got
}
