package cluster_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	containerdrig "github.com/numalet/numalet/test/containerd/rig"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// ownNetwork runs a command in the network namespace of a node with the address 192.0.2.2 and two
// more interfaces.
const ownNetwork = `set -e
ip link add own0 type veth peer name pown0
ip address add 192.0.2.2/24 dev own0
ip link add eth1 type veth peer name peth1
ip link add eth2 type veth peer name peth2
for name in lo own0 pown0 eth1 peth1 eth2 peth2; do ip link set $name up; done
exec "$@"`

const eniResource = "example.com/eni"

// TestSwitchENI: one process of the network interface plugin serves the stock kubelet, numalet, and
// the stock kubelet again. Each gives a pod an interface that no other pod has, and knows the
// holders of the others.
func TestSwitchENI(t *testing.T) {
	given := testSwitchPlugin(t, pluginOfSwitch{
		resource: eniResource, count: 1, variable: "ENI_EXAMPLE_COM_ENI_NAMES", start: switched.eniPlugin,
		check: func(f fact, got string) error {
			if !slices.Equal(f.Devices, []string{got}) {
				return fmt.Errorf("it is said to have %q", f.Devices)
			}
			return nil
		},
	})
	if given["third"] != given["first"] {
		t.Errorf("interfaces: %v", given)
	}
}

// TestSwitchGPU: the built GPU plugin does the same. Of cards that are bridged in pairs each agent
// gives a pod a pair, though its cards are not neighbours.
func TestSwitchGPU(t *testing.T) {
	testSwitchPlugin(t, pluginOfSwitch{
		resource: "nvidia.com/gpu", count: 2, variable: "NVIDIA_VISIBLE_DEVICES", start: switched.gpuPlugin,
		check: func(f fact, got string) error {
			if len(f.Devices) != 2 || !slices.Contains([]string{"0,2", "1,3", "4,6", "5,7"}, got) {
				return fmt.Errorf("it is said to have %q, and its cards are not bridged", f.Devices)
			}
			return nil
		},
	})
}

// pluginOfSwitch is a plugin, and what containers get from it.
type pluginOfSwitch struct {
	resource string
	count    int
	variable string // of the environment
	start    func(switched) *exec.Cmd
	check    func(f fact, value string) error
}

// testSwitchPlugin runs one process of a plugin under one agent after the other, and returns the
// value that each pod got.
func testSwitchPlugin(t *testing.T, p pluginOfSwitch) (given map[string]string) {
	n, d, _ := containerdrig.Node(t)
	rig.StockKubelet(t, n)
	s := switched{t, n, runtimeapi.NewRuntimeServiceClient(dial(t, d.Endpoint())), n.Program}
	plugin := p.start(s)
	var names []string
	given = map[string]string{}
	run := func(name string) { // with a UID under which both agents know it
		metadata := fmt.Sprintf("name: %s, uid: 3b1c7c0e-5b0e-4f0e-9d55-6c1f4a0f2c3%d", name, len(given))
		s.Pod(name, podManifest(metadata, fmt.Sprintf("{limits: {%s: %d}}", p.resource, p.count)))
		names = append(names, name)
		began := s.await(names)
		given[name] = s.environ(began[name], p.variable)
	}
	for i, agent := range []string{"kubelet", "numalet", "kubelet"} {
		s.begin(agent)
		s.awaitDevices()
		switch i {
		case 0:
			run("first")
		case 1:
			run("second")
		case 2: // gets what the first gives back
			s.await(names)
			names = slices.DeleteFunc(names, func(name string) bool { return name == "first" })
			s.RemovePod("first")
			s.AwaitGone("first-node")
			run("third")
		}
		for name, f := range s.await(names) {
			got := s.environ(f, p.variable)
			if err := p.check(f, got); err != nil || got != given[name] {
				t.Errorf("step %d, %s: pod %s has %q, it got %q: %v", i, agent, name, got,
					given[name], err)
			}
		}
		if err := s.Stop(); err != nil {
			t.Errorf("%s stopped: %v", agent, err)
		}
	}
	if given["first"] == given["second"] || given["third"] == given["second"] {
		t.Errorf("two pods have the same: %v", given)
	}
	if err := plugin.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the plugin has ended: %v", err)
	}
	return given
}

// eniPlugin starts the plugin in a network namespace of its own, which ends with it.
func (s switched) eniPlugin() *exec.Cmd {
	s.t.Helper()
	binary, err := harness.Lab()
	if err != nil {
		s.t.Fatal(err)
	}
	return s.startPlugin("eni", exec.Command("unshare", "--net", "sh", "-c", ownNetwork, "eni", binary,
		"plugin", "eni", "--resource="+eniResource, "--name=eth1,eth2", "--node-ip=192.0.2.2",
		"--dir="+s.plugins(), "--pod-resources="+filepath.Join(s.Root, "pod-resources", "kubelet.sock"),
		"--state-dir="+filepath.Join(s.Dir, "eni"),
		"--device-info-dir="+filepath.Join(s.Dir, "devinfo"), "--cdi-dir="+filepath.Join(s.Dir, "cdi")))
}

// gpuPlugin starts the GPU plugin with GPUs from a file.
func (s switched) gpuPlugin() *exec.Cmd {
	s.t.Helper()
	return s.startPlugin("gpu", exec.Command(harness.GPUPlugin(s.t), "--mock=h100nvl8",
		"--device-id-strategy=index", "--kubelet-socket="+filepath.Join(s.plugins(), "kubelet.sock")))
}

func (s switched) plugins() string { return filepath.Join(s.Root, "device-plugins") }

// startPlugin starts a plugin, and waits until its socket is there.
func (s switched) startPlugin(name string, cmd *exec.Cmd) *exec.Cmd {
	s.t.Helper()
	said, err := os.Create(filepath.Join(s.Dir, name+".log"))
	if err == nil {
		err = os.MkdirAll(s.plugins(), 0o750)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	defer said.Close()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		if s.t.Failed() {
			text, _ := os.ReadFile(said.Name())
			s.t.Logf("the plugin said\n%s", text)
		}
	})
	s.Eventually("the plugin serves", func() error {
		found, err := filepath.Glob(filepath.Join(s.plugins(), "*"+name+"*"))
		if err == nil && found == nil {
			err = fmt.Errorf("there is no socket in %s", s.plugins())
		}
		return err
	})
	return cmd
}

// environ returns a variable of a container's process, once it has it: a process that is being
// created has no environment yet.
func (s switched) environ(f fact, variable string) (value string) {
	s.t.Helper()
	s.Eventually("the container has its devices", func() error {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", f.PID))
		if err != nil {
			return err
		}
		for _, one := range strings.Split(string(raw), "\x00") {
			var found bool
			if value, found = strings.CutPrefix(one, variable+"="); found {
				return nil
			}
		}
		return fmt.Errorf("its environment is %q", raw)
	})
	return value
}
