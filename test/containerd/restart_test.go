package containerd_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/sim"
)

// facts must not change for a container while its agent or its runtime restarts.
type facts struct {
	ID       string
	PIDs     []int
	Restarts int32
	CPUs     string
	Own      bool
	Devices  map[string][]string
}

// factsOf gathers the facts of container main of the pods.
func (w world) factsOf(names ...string) (map[string]facts, error) {
	pods, err := w.Pods()
	if err != nil {
		return nil, err
	}
	rows, err := w.Placements()
	if err != nil {
		return nil, err
	}
	out := map[string]facts{}
	for _, name := range names {
		pod, row := pods[name], rows[name+"/main"]
		if pod.Status.Phase != v1.PodRunning || len(pod.Status.ContainerStatuses) == 0 ||
			pod.Status.ContainerStatuses[0].State.Running == nil {
			return nil, fmt.Errorf("pod %s is %s: %+v", name, pod.Status.Phase,
				pod.Status.ContainerStatuses)
		}
		f := facts{ID: w.id(pod, "main"), Restarts: w.statusOf(pod, "main").RestartCount,
			CPUs: row.CPUs, Own: row.Exclusive, Devices: row.Devices}
		f.PIDs = pids(filepath.Join(w.group(pod, pod.Status.QOSClass), f.ID))
		if len(f.PIDs) == 0 {
			return nil, fmt.Errorf("pod %s has no processes", name)
		}
		out[name] = f
	}
	return out, nil
}

// awaitFacts waits until all of the pods run.
func (w world) awaitFacts(names ...string) (got map[string]facts) {
	w.t.Helper()
	w.Eventually("all pods run", func() (err error) {
		got, err = w.factsOf(names...)
		return err
	})
	return got
}

// TestRestart: pods outlive the agent and the runtime, and are adopted as they are.
func TestRestart(t *testing.T) {
	w := newWorld(t)
	w.Start()
	plugin, _ := w.Plugin("example.com/gpu", "--devices=2", "--nodes=0")
	w.create("shared", simple("--print"))
	w.create("gpu", simple("--print", `resources: {limits: {example.com/gpu: "1"}}`))
	w.create("alone", simple("--print",
		`resources: {limits: {cpu: "1", memory: 64Mi, example.com/gpu: "1"}}`))
	w.create("done", never(simple("--exit=0")))
	names := []string{"shared-node", "gpu-node", "alone-node"}
	w.AwaitPhase("done-node", v1.PodSucceeded)
	w.awaitFacts(names...)
	w.Eventually("the shared pool has shrunk", func() error {
		pods, err := w.Pods()
		if err != nil {
			return err
		}
		pod := pods["shared-node"]
		group := filepath.Join(w.group(pod, v1.PodQOSBestEffort), w.id(pod, "main"))
		rows, err := w.Placements()
		if err != nil {
			return err
		}
		if got := cpus(t, group).String(); got != rows["shared-node/main"].CPUs {
			return fmt.Errorf("%s, want %s", got, rows["shared-node/main"].CPUs)
		}
		return nil
	})
	before := w.awaitFacts(names...)
	if !before["alone-node"].Own || len(before["gpu-node"].Devices) == 0 {
		t.Fatalf("not what this test is about: %+v", before)
	}

	same := func(t *testing.T, w world) {
		t.Helper()
		if now := w.awaitFacts(names...); !reflect.DeepEqual(now, before) {
			t.Errorf("before: %+v\nnow: %+v", before, now)
		}
		state, err := plugin.State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if state.Calls[sim.Allocate] != 2 {
			t.Errorf("the plugin was called %v, want two times Allocate", state.Calls)
		}
		done := w.AwaitPhase("done-node", v1.PodSucceeded)
		if w.statusOf(done, "main").RestartCount != 0 {
			t.Error("a pod that had ended ran again")
		}
	}
	// Subtests that start the agent do so through the original: it holds the process.
	t.Run("agent killed", func(t *testing.T) {
		for range 3 {
			w.Kill()
			w.Start()
			same(t, w.as(t))
		}
	})
	t.Run("agent stopped", func(t *testing.T) {
		if err := w.Stop(); err != nil {
			t.Fatal(err)
		}
		w.Start()
		same(t, w.as(t))
	})
	t.Run("runtime killed", func(t *testing.T) {
		w.daemon.Kill()
		if err := w.daemon.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		same(t, w.as(t))
		// The agent sees what happens in the new one, and acts in it.
		w.create("brief", never(simple("--exit=4")))
		w.as(t).AwaitPhase("brief-node", v1.PodFailed)
		w.as(t).remove("brief")
	})
	t.Run("both killed", func(t *testing.T) {
		w.Kill()
		w.daemon.Kill()
		if err := w.daemon.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.Start()
		same(t, w.as(t))
	})
}

// TestAway: what changes while the agent is away is made up for when it is back.
func TestAway(t *testing.T) {
	w := newWorld(t)
	w.Start()
	w.run("leaves", simple("--print", `resources: {limits: {cpu: 100m, memory: 64Mi}}`))
	w.run("stays", simple("--print"))
	w.create("ends", never(simple("--exit=6, --after=1500ms")))
	w.AwaitPhase("ends-node", v1.PodRunning)
	before := w.awaitFacts("stays-node")
	pods, err := w.Pods()
	if err != nil {
		t.Fatal(err)
	}
	ends := w.watchEnds()
	w.Kill()
	w.RemovePod("leaves")
	w.create("comes", simple("--print"))
	orphan := v1.Pod{}
	orphan.UID = "0a0a0a0a-0000-4000-8000-000000000000"
	makeGroup(t, w.group(orphan, v1.PodQOSBestEffort))
	if got := ends.await(w, "ends-node/main"); got.code != 6 {
		t.Errorf("exit code %d", got.code)
	}
	w.Start()

	w.AwaitPhase("comes-node", v1.PodRunning)
	ended := w.AwaitPhase("ends-node", v1.PodFailed)
	if s := w.statusOf(ended, "main"); s.State.Terminated == nil ||
		s.State.Terminated.ExitCode != 6 ||
		s.RestartCount != 0 {
		t.Errorf("it ended as %+v", s)
	}
	if now := w.awaitFacts("stays-node"); !reflect.DeepEqual(now, before) {
		t.Errorf("before: %+v\nnow: %+v", before, now)
	}
	leaves := pods["leaves-node"]
	w.Eventually("what nobody desires is removed", func() error {
		var errs []error
		for _, group := range []string{
			w.group(leaves, v1.PodQOSGuaranteed), w.group(orphan, v1.PodQOSBestEffort),
		} {
			if _, err := cgroupFile(group, "cpu", "cgroup.procs"); !os.IsNotExist(err) {
				errs = append(errs, fmt.Errorf("cgroup %s: %w", group, errOrThere(err)))
			}
		}
		dir := filepath.Join(w.Root, "pods", string(leaves.UID))
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			errs = append(errs, fmt.Errorf("%s: %w", dir, errOrThere(err)))
		}
		return errors.Join(errs...)
	})
}

func errOrThere(err error) error {
	if err == nil {
		return os.ErrExist
	}
	return err
}

// makeGroup makes an empty cgroup, in cgroup v1 in the hierarchies of two controllers.
func makeGroup(t *testing.T, group string) {
	t.Helper()
	dirs := []string{"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/memory"}
	if unified() {
		dirs = []string{"/sys/fs/cgroup"}
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(filepath.Join(dir, group), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
