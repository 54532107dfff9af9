package test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/handover"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	cpucheckpoint "github.com/numalet/numalet/cpumanager/checkpoint"
	"github.com/numalet/numalet/deviceplugin/checkpoint"
	"github.com/numalet/numalet/test/harness"
	memorystate "github.com/numalet/numalet/topology/memory/state"
)

// damages returns damaged versions of a file of assignments.
func damages(good []byte) map[string][]byte {
	out := map[string][]byte{
		"empty": {}, "zeros": make([]byte, len(good)),
		"newer": bytes.Replace(good, []byte(`"version":`), []byte(`"version":9`), 1),
	}
	for _, part := range []int{1, 4, 10, 13, 15} {
		at := part * len(good) / 16
		out[fmt.Sprintf("cut at %d/16", part)] = good[:at]
		flipped := bytes.Clone(good)
		flipped[at] ^= 1
		out[fmt.Sprintf("flipped at %d/16", part)] = flipped
	}
	return out
}

// quarantined waits for the event about a file that was moved aside, and checks that its content is
// kept; nil stands for a folder.
func quarantined(t testing.TB, n *harness.Node, path string, content []byte) {
	t.Helper()
	aside, err := filepath.Glob(path + ".corrupt-*")
	if err != nil || len(aside) != 1 {
		t.Fatalf("moved aside: %v, %v", aside, err)
	}
	awaitLogged(t, n, `"Event" node="node" type="Warning" reason="StateFileQuarantined"`, aside[0])
	if content != nil {
		if raw, err := os.ReadFile(aside[0]); err != nil || !bytes.Equal(raw, content) {
			t.Errorf("%s is not what it was: %v", aside[0], err)
		}
	}
	if err := os.RemoveAll(aside[0]); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedStateFile damages the state file in many ways while ten pods run. The file is moved
// aside with an event, and all pods keep what they have.
func TestDamagedStateFile(t *testing.T) {
	t.Parallel()
	m := newMigrant(t, policies{"static", "Static", "best-effort"})
	path := filepath.Join(m.Root, store.FileName)
	good := readFile(t, path)
	first := bytes.IndexByte(good, '\n') + 1 // the rest are the changes since
	for name, damaged := range damages(good[:first]) {
		m.restart(func() { writeFile(t, path, string(damaged)+string(good[first:])) })
		m.check(name)
		quarantined(t, m.Node, path, slices.Concat(damaged, good[first:]))
	}
	for part := 1; part < 8; part++ {
		at := first + part*(len(good)-first)/8
		m.restart(func() { writeFile(t, path, string(good[:at])) })
		m.check(fmt.Sprintf("cut at %d", at)) // a cut file is a valid, older state
		flipped := bytes.Clone(good)
		flipped[at] ^= 1
		m.restart(func() { writeFile(t, path, string(flipped)) })
		m.check(fmt.Sprintf("flipped at %d", at))
		quarantined(t, m.Node, path, flipped)
	}
	m.restart(func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	})
	m.check("missing")
	for name, intrude := range map[string]func() error{
		"a folder": func() error { return os.Mkdir(path, 0o700) },
		"a pipe":   func() error { return unix.Mkfifo(path, 0o600) },
		"a device": func() error { return os.Symlink("/dev/zero", path) },
	} {
		m.restart(func() {
			if err := errors.Join(os.Remove(path), intrude()); err != nil {
				t.Fatal(err)
			}
		})
		m.check(name + " in its place")
		quarantined(t, m.Node, path, nil)
	}
	m.admits("after all that")
}

// TestStateLostDuringInit loses the state and kills the agent while an init container runs. The
// later containers get what was planned for them, without a call of Allocate, and no other pod got
// any of it meanwhile.
func TestStateLostDuringInit(t *testing.T) {
	const wishes = "cpu: 4, memory: 1Gi, " + gpu + ": 1"
	for name, lose := range map[string]func(path string) error{
		"removed": os.Remove,
		"damaged": func(path string) error { return os.Truncate(path, 20) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.New(t)
			eager(n)
			staticMemory(n)
			n.Start()
			plugin, _ := n.Plugin(gpu, "--devices=2", "--nodes=0-3")
			n.Pod("own", manifestOf("own", `initContainers:
  - {name: init, image: sim.local/app, resources: {limits: {cpu: 2, memory: 1Gi}}}
  containers:
  - {name: main, image: sim.local/app, resources: {limits: {`+wishes+`}}}`))
			awaitContainer(n, "own-node", "init", func(c crisim.Container) error {
				if c.State != "RUNNING" {
					return fmt.Errorf("it is %s", c.State)
				}
				return nil
			})
			want := byName(assignedState(t, n))["own-node"]
			n.Kill()
			if err := lose(filepath.Join(n.Root, store.FileName)); err != nil {
				t.Fatal(err)
			}
			n.Start()
			n.Pod("rival", limited("rival", wishes))
			n.Pod("third", limited("third", wishes))
			n.Eventually("one of two other pods runs", func() error {
				pods, err := n.Pods()
				if err != nil || pods["rival-node"].Status.Phase == v1.PodRunning ||
					pods["third-node"].Status.Phase == v1.PodRunning {
					return err
				}
				return fmt.Errorf("%v, %v", pods["rival-node"].Status, pods["third-node"].Status)
			})
			if err := n.Runtime.Exit("own-node/init", crisim.Exit{}); err != nil {
				t.Fatal(err)
			}
			n.AwaitPhase("own-node", v1.PodRunning)
			state := byName(assignedState(t, n))
			if diff := cmp.Diff(want, state["own-node"], cmp.Comparer(sameHeld)); diff != "" {
				t.Errorf("the pod was given (-before +after):\n%s", diff)
			}
			main := container(t, n, "own-node", "main")
			if held := want.Containers["main"]; main.CPUs != held.CPUs().String() ||
				!slices.Equal(devicesOf(main, gpu), held.Devices()[0].IDs) {
				t.Errorf("main runs with CPUs %s and %v, want %+v",
					main.CPUs, devicesOf(main, gpu), held)
			}
			if calls := allocations(t, plugin)[0]; calls != 2 {
				t.Errorf("the plugin was asked %d times for two pods", calls)
			}
			nothingTwice(t, state)
		})
	}
}

// sameHeld reports whether both would be recorded as the same.
func sameHeld(a, b allocation.Container) bool {
	one, err := handover.Describe("", a)
	other, otherErr := handover.Describe("", b)
	return err == nil && otherErr == nil && one == other
}

// nothingTwice checks that no CPU and no device belongs to two pods.
func nothingTwice(t *testing.T, pods map[string]allocation.Pod) {
	t.Helper()
	cpus, devices := cpuset.New(), sets.New[string]()
	for name, p := range pods {
		own := allocation.HoldingsOf(p)
		if both := cpus.Intersection(own.CPUs()); !both.IsEmpty() {
			t.Errorf("CPUs %s are assigned twice, to %s too", both, name)
		}
		cpus = cpus.Union(own.CPUs())
		if both := devices.Intersection(own.Devices()[gpu]); both.Len() > 0 {
			t.Errorf("%v are assigned twice, to %s too", sets.List(both), name)
		}
		devices = devices.Union(own.Devices()[gpu])
	}
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestDamagedKubeletFiles: on the first start after a kubelet, kubelet files that cannot be read
// are moved aside with an event. The kubelet's pod is not restarted, and no other pod gets anything
// that it is known to have.
func TestDamagedKubeletFiles(t *testing.T) {
	const uid, ownCPUs, device = "3b1c7c0e-5b0e-4f0e-9d55-6c1f4a0f2c11", "37-38", "gpu-5"
	for _, file := range []string{
		cpucheckpoint.FileName, memorystate.FileName,
		filepath.Join("device-plugins", checkpoint.FileName),
	} {
		for _, name := range []string{"zeros", "cut", "a folder"} {
			t.Run(filepath.Base(file)+" "+name, func(t *testing.T) {
				t.Parallel()
				n := harness.New(t)
				eager(n)
				n.Start()
				n.Pod("own", strings.Replace(limited("own", "cpu: 2, memory: 1Gi, "+gpu+": 1"),
					"metadata:\n", "metadata:\n  uid: "+uid+"\n", 1))
				pod := awaitPod(n, "own-node", func(v1.Pod) error { return nil })
				n.Kill()
				pod.Status = v1.PodStatus{}
				answer := &v1beta1.ContainerAllocateResponse{Envs: map[string]string{"GPU": device}}
				byKubelet(t, n, &pod, ownCPUs, answer)
				kubeletFiles(t, n, uid, ownCPUs, checkpoint.DevicesPerNUMA{2: {device}}, answer)
				path := filepath.Join(n.Root, file)
				content := damage(t, path, name)
				since := lastCall(n)

				n.Start()
				plugin, _ := n.Plugin(gpu, "--devices=8", "--nodes=0-3")
				n.AwaitPhase("own-node", v1.PodRunning)
				quarantined(t, n, path, content)
				n.Pod("new", limited("new", "cpu: 60, memory: 1Gi"))
				n.AwaitPhase("new-node", v1.PodRunning)
				for _, c := range n.Runtime.Journal(since) {
					if c.Subject.Pod != "new-node" && c.Method != "UpdateContainerResources" {
						t.Errorf("the runtime was told: %+v", c)
					}
				}
				known := byName(assignedState(t, n))["own-node"].Containers["main"]
				knows := known.CPUs().String() == ownCPUs
				if knows == (file == cpucheckpoint.FileName) {
					t.Errorf("its CPUs are %q", known.CPUs())
				}
				if file != filepath.Join("device-plugins", checkpoint.FileName) {
					if len(known.Devices()) != 1 || known.Devices()[0].IDs[0] != device {
						t.Errorf("its devices are %+v", known.Devices())
					}
					if calls := allocations(t, plugin)[0]; calls != 0 {
						t.Errorf("the plugin was asked %d times", calls)
					}
				}
				main, extra := container(t, n, "own-node", "main"),
					container(t, n, "new-node", "main")
				if both := cpusOf(main).Intersection(cpusOf(extra)); !both.IsEmpty() {
					t.Errorf("both run on CPUs %s", both)
				}
			})
		}
	}
}

// damage changes the file, which need not exist yet, and returns its new content, or nil if it is a
// folder.
func damage(t *testing.T, path, how string) []byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	switch how {
	case "zeros":
		raw = make([]byte, 200)
	case "cut":
		raw = raw[:len(raw)/2]
	case "a folder":
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		return nil
	default:
		t.Fatalf("damage %q", how)
	}
	writeFile(t, path, string(raw))
	return raw
}

// TestStateFileCannotBeWritten: a pod whose assignment cannot be written waits and says so. Nothing
// is half written, other pods are not affected, and the pod runs once the cause is gone.
func TestStateFileCannotBeWritten(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	plugin, _ := n.Plugin(gpu, "--devices=8", "--nodes=0-3")
	n.Pod("old", twoDevices("old"))
	n.AwaitPhase("old-node", v1.PodRunning)
	path := filepath.Join(n.Root, store.FileName)
	before, since := readFile(t, path), lastCall(n)
	if err := errors.Join(os.Rename(path, path+".before"), os.MkdirAll(path, 0o700),
		os.WriteFile(filepath.Join(path, "x"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	n.Pod("new", twoDevices("new"))
	awaitLogged(t, n, `"Pod waits"`, "new-node", "WaitingForStateFile", "write "+path)
	if !bytes.Equal(before, readFile(t, path+".before")) {
		t.Error("the state file is another one")
	}
	n.Pod("plain", plain("plain"))
	n.AwaitPhase("plain-node", v1.PodRunning)
	if err := errors.Join(os.RemoveAll(path), os.Rename(path+".before", path)); err != nil {
		t.Fatal(err)
	}
	n.AwaitPhase("new-node", v1.PodRunning)
	if pods := assignedState(t, n).Pods; len(pods) != 2 {
		t.Errorf("the state has %d pods", len(pods))
	}
	if calls := allocations(t, plugin)[0]; calls != 2 {
		t.Errorf("the plugin was asked %d times for two pods", calls)
	}
	for _, c := range n.Runtime.Journal(since) {
		if c.Subject.Pod == "old-node" {
			t.Errorf("the pod that ran was touched: %+v", c)
		}
	}
}
