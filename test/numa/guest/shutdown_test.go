package guest_test

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
	"github.com/numalet/numalet/test/harness"
)

// The pods of a shutdown: by their names, their priorities. Each takes some seconds to exit.
var ending = map[string]string{
	"low": "priority: 0", "middle": "priority: 1000",
	"high": "priority: 2000001000, priorityClassName: system-node-critical",
}

// newEnding returns a node with those pods, under numalet or the stock kubelet.
func newEnding(t *testing.T) *harness.Node {
	t.Helper()
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
	d := newRuntime(t)
	n := harness.NewOn(t, d.Endpoint())
	t.Cleanup(func() {
		if t.Failed() { // what does the agent wait for?
			t.Log(n.Stacks())
		}
	})
	n.Dir, n.Root, n.Manifests = home, home+"/root", home+"/manifests"
	if err := os.MkdirAll(n.Manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	n.Args = []string{"--root-dir=" + n.Root, "--hostname-override=node", "-v=2"}
	if os.Getenv("NUMALET_AGENT") == "kubelet" {
		n.Program = []string{filepath.Join(dir, "kubelet")}
		n.Settings["authentication"] = map[string]any{"webhook": map[string]any{"enabled": false}}
		n.Settings["authorization"] = map[string]any{"mode": "AlwaysAllow"}
	}
	for name, value := range map[string]any{
		"staticPodPath": n.Manifests, "podLogsDir": home + "/logs",
		"cpuManagerPolicy": "none", "topologyManagerPolicy": "none",
		"evictionHard": map[string]string{ // the disk is small
			"memory.available": "1Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
			"imagefs.available": "0%", "imagefs.inodesFree": "0%",
		},
		"shutdownGracePeriodByPodPriority": []map[string]any{
			{"priority": 0, "shutdownGracePeriodSeconds": 120},
			{"priority": 1000, "shutdownGracePeriodSeconds": 110},
			{"priority": 100_000, "shutdownGracePeriodSeconds": 100},
		},
	} {
		n.Settings[name] = value
	}
	for name, priority := range ending {
		n.Pod(name, ends(name, priority+", terminationGracePeriodSeconds: 60"))
	}
	n.Start()
	for name := range ending {
		n.AwaitPhase(name+"-node", v1.PodRunning)
	}
	n.Eventually("logind is inhibited", func() error {
		out, err := exec.Command("systemd-inhibit", "--list", "--no-legend").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "kubelet") {
			return fmt.Errorf("systemd-inhibit --list: %s (%w)", out, err)
		}
		return nil
	})
	return n
}

// ends is the manifest of a pod. The kubelet takes one that begins with a brace for JSON.
func ends(name, more string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec: {hostNetwork: true, %s, containers: [{name: main, image: %q, args: [--print]}]}
`, name, more, containerd.WorkImage)
}

// TestShutdownTurnedOff: systemctl poweroff has the pods end in the order of their priorities, and the
// machine go down only then.
func TestShutdownTurnedOff(t *testing.T) {
	n := newEnding(t)
	drop, err := os.ReadFile("/etc/systemd/logind.conf.d/99-kubelet.conf")
	if err != nil || !strings.Contains(string(drop), "InhibitDelayMaxSec=330") {
		t.Errorf("logind's drop-in is %q (%v)", drop, err)
	}
	if out, err := exec.Command("busctl", "get-property", "org.freedesktop.login1",
		"/org/freedesktop/login1", "org.freedesktop.login1.Manager",
		"InhibitDelayMaxUSec").CombinedOutput(); err != nil ||
		strings.TrimSpace(string(out)) != "t 330000000" {
		t.Errorf("logind waits %s (%v)", out, err)
	}
	if out, err := exec.Command("systemctl", "poweroff").CombinedOutput(); err != nil {
		t.Fatalf("systemctl poweroff: %v: %s", err, out)
	}
	w := seenEnds{t: t, began: time.Now(), ended: map[string]v1.PodStatus{}}
	n.Eventually("all pods have ended", func() error {
		pods, err := n.Pods()
		if err != nil {
			return err
		}
		w.look(pods)
		if len(w.order) == 1 && !w.asked {
			w.asked = true
			n.Pod("late", ends("late", "priority: 0"))
		}
		if len(w.ended) <= len(ending) {
			return fmt.Errorf("%v have ended", w.order)
		}
		return nil
	})
	n.Eventually("the end of the shutdown is recorded", func() error {
		raw, err := os.ReadFile(home + "/root/graceful_node_shutdown_state")
		if err == nil && strings.Contains(string(raw), `"0001-`) {
			err = fmt.Errorf("it is %s", raw)
		}
		return err
	})
	if got := fmt.Sprint(w.order); got != "[low middle high]" {
		t.Errorf("the pods ended in the order %s", got)
	}
	for name, s := range w.ended {
		reason, message := "Terminated", "Pod was terminated in response to imminent node shutdown."
		if name == "late" {
			reason = "NodeShutdown"
			message = "Pod was rejected: Pod was rejected as the node is shutting down."
		}
		if s.Phase != v1.PodFailed || s.Reason != reason || s.Message != message {
			t.Errorf("%s is %s, %s: %s", name, s.Phase, s.Reason, s.Message)
		}
	}
}

// seenEnds records how pods end.
type seenEnds struct {
	t     *testing.T
	began time.Time
	ended map[string]v1.PodStatus
	order []string // of the pods in ending
	asked bool     // for one more pod
}

func (w *seenEnds) look(pods map[string]v1.Pod) {
	for full, pod := range pods {
		name, s := strings.TrimSuffix(full, "-node"), pod.Status
		if _, seen := w.ended[name]; seen || s.Phase != v1.PodFailed && s.Phase != v1.PodSucceeded {
			continue
		}
		w.ended[name] = s
		if _, is := ending[name]; is {
			w.order = append(w.order, name)
		}
		row(w.t, "%s after %.1f s: %s, %s: %s", name, time.Since(w.began).Seconds(), s.Phase, s.Reason,
			s.Message)
	}
}

// TestShutdownTurnedOn: after the boot the static pods run again.
func TestShutdownTurnedOn(t *testing.T) {
	raw, err := os.ReadFile(home + "/root/graceful_node_shutdown_state")
	if err != nil || strings.Contains(string(raw), `"0001-`) {
		t.Errorf("the last shutdown was %s (%v)", raw, err)
	}
	row(t, "the last shutdown: %s", strings.TrimSpace(string(raw)))
	if err := os.Remove(home + "/manifests/late.yaml"); err != nil && !os.IsNotExist(err) {
		t.Error(err)
	}
	n := newEnding(t)
	for name := range ending {
		row(t, "%s is %s", name, n.AwaitPhase(name+"-node", v1.PodRunning).Status.Phase)
	}
	n.Kill()
}
