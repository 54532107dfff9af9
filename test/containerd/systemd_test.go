package containerd_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/containerd/rig"
)

// TestSystemd: with the cgroup driver systemd pods have slices that a real systemd knows, and containers
// scopes in them. What they may use stays when systemd writes what it knows anew and when the agent
// was killed, and no container notices. With its pod a slice goes.
func TestSystemd(t *testing.T) {
	if !rig.Systemd(t) {
		return
	}
	w := newWorld(t)
	w.Start()
	w.run("besteffort", simple("--print"))
	w.run("burstable", simple("--print", `resources: {requests: {cpu: 250m}, limits: {cpu: 500m}}`))
	w.run("alone", simple("--print", `resources: {limits: {cpu: 500m, memory: 64Mi}}`))
	before := w.slices()
	for name, want := range map[string]string{
		"besteffort": "kubepods-besteffort.slice/kubepods-besteffort-pod", "alone": "kubepods-pod",
		"burstable": "kubepods-burstable.slice/kubepods-burstable-pod",
	} {
		if got := before[name]; !strings.Contains(got, "/kubepods.slice/"+want) ||
			!strings.Contains(got, ".slice/cri-containerd-") {
			t.Errorf("%s: %s", name, got)
		}
	}
	for i := range 3 {
		w.systemctl("daemon-reload")
		w.Kill()
		w.Start()
		w.AwaitPhase("alone-node", v1.PodRunning)
		if diff := cmp.Diff(before, w.slices()); diff != "" {
			t.Errorf("after kill %d, -before +now:\n%s", i, diff)
		}
	}
	for name := range before {
		w.remove(name)
	}
	w.Eventually("the pods' slices are gone", func() error {
		if left := w.systemctl("list-units", "--all", "--plain", "--no-legend",
			"kubepods*-pod*.slice"); left != "" {
			return fmt.Errorf("there are %s", left)
		}
		return nil
	})
}

// slices tell of each pod's container by which process it is, in which cgroup, and what that one's
// slice may use.
func (w world) slices() map[string]string {
	w.t.Helper()
	out := map[string]string{}
	pods, err := w.Pods()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, pod := range pods {
		id := w.id(pod, "main")
		found, err := filepath.Glob("/sys/fs/cgroup/systemd/kubepods.slice/*/*" + id + "*")
		more, errMore := filepath.Glob("/sys/fs/cgroup/systemd/kubepods.slice/*/*/*" + id + "*")
		if found = append(found, more...); err != nil || errMore != nil || len(found) != 1 {
			w.t.Fatalf("pod %s is in %v (%v %v)", pod.Name, found, err, errMore)
		}
		scope := strings.TrimPrefix(found[0], "/sys/fs/cgroup/systemd")
		slice := filepath.Dir(scope)
		text := fmt.Sprintf("%s, processes %v, %s", scope, pids(scope), w.systemctl("show",
			filepath.Base(slice), "-p", "ActiveState,CPUShares,CPUQuotaPerSecUSec,MemoryLimit"))
		for _, file := range []string{
			"cpu" + slice + "/cpu.shares", "cpu" + slice + "/cpu.cfs_quota_us",
			"memory" + slice + "/memory.limit_in_bytes", "pids" + slice + "/pids.max",
		} {
			is, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", file))
			if err != nil {
				w.t.Error(err)
			}
			text += "\n" + file + " " + strings.TrimSpace(string(is))
		}
		out[strings.TrimSuffix(pod.Name, "-node")] = text
	}
	return out
}

func (w world) systemctl(args ...string) string {
	w.t.Helper()
	said, err := exec.CommandContext(w.t.Context(), "systemctl", args...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("systemctl %v: %v\n%s", args, err, said)
	}
	return strings.TrimSpace(string(said))
}
