package test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/cmd/numalet-lab/logind"
	pluginsim "github.com/numalet/numalet/cmd/numalet-lab/sim"
	"github.com/numalet/numalet/test/harness"
)

// withLogind has the node follow a logind of its own, with two waves.
func withLogind(t *testing.T, n *harness.Node) *logind.Bus {
	t.Helper()
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	bus, err := logind.Listen(filepath.Join(n.Dir, "bus"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bus.Close() })
	const long = 1800 // seconds: no wave's time is up in a test
	bus.Delay(2*long*1e9, nil)
	n.Program = []string{"env", "DBUS_SYSTEM_BUS_ADDRESS=" + bus.Address(), binary}
	n.Settings["shutdownGracePeriodByPodPriority"] = []map[string]any{
		{"priority": 0, "shutdownGracePeriodSeconds": long},
		{"priority": 1000, "shutdownGracePeriodSeconds": long},
	}
	return bus
}

func inhibitors(n *harness.Node, bus *logind.Bus, want int) {
	n.Eventually(fmt.Sprint(want, " inhibitors"), func() error {
		if got := bus.Locks(); got != want {
			return fmt.Errorf("there are %d", got)
		}
		return nil
	})
}

// prioritized returns a pod with one container, a priority, and these limits.
func prioritized(name string, priority int, limits, script string) string {
	return manifestOf(name, fmt.Sprintf("priority: %d\n  containers: [{name: main, image: sim.local/app, "+
		"resources: {limits: {%s}}}]", priority, limits), "main: "+script)
}

// terminated waits until the pod has failed as a shutdown has pods fail.
func terminated(t *testing.T, n *harness.Node, name string) {
	t.Helper()
	s := n.AwaitPhase(name, v1.PodFailed).Status
	if s.Reason != "Terminated" ||
		s.Message != "Pod was terminated in response to imminent node shutdown." {
		t.Errorf("%s has failed for %s: %s", name, s.Reason, s.Message)
	}
	for _, c := range s.Conditions {
		if c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue &&
			c.Reason == "TerminationByKubelet" && c.Message == s.Message {
			return
		}
	}
	t.Errorf("%s has no DisruptionTarget: %+v", name, s.Conditions)
}

// TestShutdown: the pods of lower priority end first, whatever their exit code; those of the next
// wave when the plugin knows that the devices are released. Then the machine may go down. If it
// does not, the node takes pods again.
func TestShutdown(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	bus := withLogind(t, n)
	n.Start()
	ctl, _ := n.Plugin(gpu, "--devices=2", "--nodes=0-1", "--released")
	n.Pod("low", prioritized("low", 0, "cpu: 1, memory: 1Gi, "+gpu+": 1", "term=0"))
	n.Pod("high", prioritized("high", 1000, "cpu: 1, memory: 1Gi, "+gpu+": 1", ""))
	n.AwaitPhase("low-node", v1.PodRunning)
	n.AwaitPhase("high-node", v1.PodRunning)
	inhibitors(n, bus, 1)
	if err := ctl.Fault(t.Context(), pluginsim.Fault{
		RPC: pluginsim.Released, Code: "UNAVAILABLE", Message: "the switch is busy",
	}); err != nil {
		t.Fatal(err)
	}

	bus.Prepare(true)
	terminated(t, n, "low-node")
	n.Pod("late", plain("late"))
	late := n.AwaitPhase("late-node", v1.PodFailed).Status
	if late.Reason != "NodeShutdown" ||
		late.Message != "Pod was rejected: Pod was rejected as the node is shutting down." {
		t.Errorf("a pod that came late failed for %s: %s", late.Reason, late.Message)
	}
	n.Eventually("the plugin was asked", func() error {
		if text := n.Get("/problems"); !strings.Contains(text, "the switch is busy") {
			return fmt.Errorf("/problems says %s", text)
		}
		return nil
	})
	if pods, err := n.Pods(); err != nil || pods["high-node"].Status.Phase != v1.PodRunning ||
		bus.Locks() != 1 {
		t.Errorf("before the first wave is over, high is %s, and %d inhibitors are held (%v)",
			pods["high-node"].Status.Phase, bus.Locks(), err)
	}
	if err := ctl.ClearFaults(t.Context()); err != nil {
		t.Fatal(err)
	}
	terminated(t, n, "high-node")
	inhibitors(n, bus, 0)
	if got := releases(t, n, ctl, 2); len(got) != 2 {
		t.Errorf("the plugin was told of %v", got)
	}
	raw, err := os.ReadFile(filepath.Join(n.Root, "graceful_node_shutdown_state"))
	if err != nil || strings.Contains(string(raw), `"0001-`) {
		t.Errorf("the times of the shutdown are %s (%v)", raw, err)
	}

	bus.Prepare(false)
	inhibitors(n, bus, 1)
	n.Pod("new", plain("new"))
	n.AwaitPhase("new-node", v1.PodRunning)
}

// TestShutdownOfRemovedPod: a static pod whose manifest is gone, with a grace period of its own of five
// minutes, has no more time than its wave. One whose manifest was written again meanwhile is over when its
// containers have ended.
func TestShutdownOfRemovedPod(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script string
		wave   int // seconds
		again  bool
	}{
		"gone": {"term=ignore", 4, false}, "again": {"term=0 term-after=4s", 1800, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.New(t)
			bus := withLogind(t, n)
			n.Settings["shutdownGracePeriodByPodPriority"] = []map[string]any{
				{"priority": 0, "shutdownGracePeriodSeconds": test.wave},
			}
			n.Start()
			pod := manifestOf("web", "terminationGracePeriodSeconds: 300\n  "+
				"containers: [{name: main, image: sim.local/app}]", "main: "+test.script)
			n.Pod("web", pod)
			n.AwaitPhase("web-node", v1.PodRunning)
			inhibitors(n, bus, 1)
			n.RemovePod("web")
			n.Eventually("it is told to stop", func() error {
				if !slices.ContainsFunc(n.Runtime.Journal(0), func(c crisim.Call) bool {
					return c.Method == "StopContainer"
				}) {
					return errors.New("it is not")
				}
				return nil
			})
			if test.again {
				n.Pod("web", pod)
			}
			bus.Prepare(true)
			n.Eventually("nothing runs", func() error {
				if left := n.Runtime.State().Running(); len(left) > 0 {
					return fmt.Errorf("%s does", harness.NameOf(left[0]))
				}
				return nil
			})
			inhibitors(n, bus, 0)
		})
	}
}

// TestShutdownKilled kills the agent at each point of a shutdown. Whether the machine goes down or
// not, the next agent does what is left, and after that static pods run again with their devices.
func TestShutdownKilled(t *testing.T) {
	t.Parallel()
	for name, point := range map[string]func(*harness.Node, *logind.Bus){
		"when it is announced": func(n *harness.Node, bus *logind.Bus) { bus.Prepare(true) },
		"in the first wave": func(n *harness.Node, bus *logind.Bus) {
			bus.Prepare(true)
			awaitLogged(t, n, "Ending a pod, since the machine goes down", "default/low-node")
		},
		"in the second wave": func(n *harness.Node, bus *logind.Bus) {
			bus.Prepare(true)
			awaitLogged(t, n, "Ending a pod, since the machine goes down", "default/high-node")
		},
		"after it": func(n *harness.Node, bus *logind.Bus) {
			bus.Prepare(true)
			inhibitors(n, bus, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.New(t)
			bus := withLogind(t, n)
			n.Start()
			n.Plugin(gpu, "--devices=2", "--nodes=0-1", "--released")
			n.Pod("low", prioritized("low", 0, "cpu: 1, memory: 1Gi, "+gpu+": 1", "term-after=200ms"))
			n.Pod("high", prioritized("high", 1000, "cpu: 1, memory: 1Gi, "+gpu+": 1", "term-after=200ms"))
			n.AwaitPhase("low-node", v1.PodRunning)
			n.AwaitPhase("high-node", v1.PodRunning)
			inhibitors(n, bus, 1)
			point(n.As(t), bus)
			n.Kill()
			inhibitors(n, bus, 0)

			// Somebody starts it again while the machine still goes down.
			n.Start()
			// Static pods that had ended begin again, and are refused.
			for _, name := range []string{"low-node", "high-node"} {
				s := n.AwaitPhase(name, v1.PodFailed).Status
				if s.Reason != "Terminated" && s.Reason != "NodeShutdown" {
					t.Errorf("%s has failed for %s: %s", name, s.Reason, s.Message)
				}
			}
			if bus.Locks() != 0 {
				t.Error("an inhibitor was taken in a shutdown")
			}
			n.Kill()

			bus.Restart() // the machine has booted
			n.Start()
			n.AwaitPhase("low-node", v1.PodRunning)
			n.AwaitPhase("high-node", v1.PodRunning)
			inhibitors(n, bus, 1)
		})
	}
}
