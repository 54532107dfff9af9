package beside

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/test/cluster/rig"
	containerdrig "github.com/numalet/numalet/test/containerd/rig"
)

// sampleResource is the resource of Kubernetes' sample device plugin, which has two devices.
const sampleResource = "example.com/resource"

// sampleMode is a way to run the plugin.
type sampleMode struct {
	name string
	// registry: its socket is in the plugin registry; controlled: it registers when a file is
	// removed.
	registry, controlled, cdi bool
}

// TestSamplePlugin: both agents send the same calls to Kubernetes' sample device plugin in each of
// its modes, and the node and its pods have the same histories. Several run at once: they mostly
// wait for the plugin, which looks for a new kubelet.sock every 10 s.
func TestSamplePlugin(t *testing.T) {
	modes := []sampleMode{
		{name: "directory"}, {name: "cdi", cdi: true}, {name: "registry", registry: true},
		{name: "controlled", controlled: true, cdi: true},
	}
	containerdrig.Require(t)
	containerdrig.Alone(t)
	sampleMounted(t)
	var mu sync.Mutex
	seen := map[string]map[string]string{}
	if !t.Run("runs", func(t *testing.T) {
		for _, mode := range modes {
			for _, agent := range []string{"kubelet", "numalet"} {
				t.Run(mode.name+"-"+agent, func(t *testing.T) {
					t.Parallel()
					run := runSample(t, agent, mode)
					mu.Lock()
					defer mu.Unlock()
					seen[mode.name+"-"+agent] = run
				})
			}
		}
	}) {
		return
	}
	for _, mode := range modes {
		kubelet, numalet := seen[mode.name+"-kubelet"], seen[mode.name+"-numalet"]
		t.Run(mode.name, func(t *testing.T) {
			if len(kubelet) == 0 || len(numalet) == 0 {
				t.Skip("left out: one of them was")
			}
			compare(t, kubelet, numalet, sampleDifferences)
		})
	}
}

// sampleDevices are the plugin's devices.
var sampleDevices = []string{"Dev-1", "Dev-2"}

// sampleMounted creates the files that the plugin lets containers mount, which are always below the
// machine's /tmp. The plugin itself has another /tmp.
func sampleMounted(t *testing.T) {
	t.Helper()
	for _, id := range sampleDevices {
		path := filepath.Join("/tmp", id)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.Remove(path); err != nil {
				t.Error(err)
			}
		})
	}
}

// sample is a node with the plugin.
type sample struct {
	*testing.T
	mode    sampleMode
	cluster rig.Cluster
	node    rig.Node
	cdiDir  string
	plugin  *exec.Cmd
	ended   chan struct{} // closed when the plugin has ended; nil: it was stopped, or not started
	seen    *history
}

// runSample runs the scenario with one agent.
func runSample(t *testing.T, agent string, mode sampleMode) map[string]string {
	t.Helper()
	c := rig.Start(t)
	n, d, _ := containerdrig.NodeBeside(t, mode.name+"-"+agent)
	if agent == "kubelet" {
		rig.StockKubelet(t, n)
	} else {
		n.Args = append(n.Args, "--device-admission-wait=0", "--device-plugin-allocatable-grace=0")
	}
	n.Settings["evictionHard"] = noEviction
	n.Settings["nodeStatusUpdateFrequency"] = "1s"
	s := &sample{t, mode, c, c.Join(n, "sample-"+mode.name+"-"+agent), d.CDIDir(), nil, nil, nil}
	if err := os.MkdirAll(s.tmp(), 0o700); err != nil {
		t.Fatal(err)
	}
	s.seen = follow(t, c, s.node.Name)
	n.Start()
	c.AwaitReady(s.node.Name)
	for _, step := range sampleScenario {
		step.does(s)
		s.caughtUp()
		s.seen.end(step.name, s.calls())
	}
	return s.seen.steps
}

// sampleScenario has the steps. Each ends when nothing more happens.
var sampleScenario = []struct {
	name string
	does func(*sample)
}{
	{"registered", func(s *sample) { s.startPlugin(); s.awaitDevices(2, 2) }},
	{"allocated", func(s *sample) { s.pod("one", 1); s.await("one", v1.PodRunning) }},
	{"too many", func(s *sample) { s.pod("much", 2); s.await("much", v1.PodFailed) }},
	{"allocation fails", func(s *sample) {
		stop := s.obstruct()
		s.pod("unlucky", 1)
		s.await("unlucky", v1.PodFailed)
		stop()
	}},
	{"agent restarts", func(s *sample) {
		s.stopAgent()
		s.startAgent()
		s.pod("two", 1)
		s.await("two", v1.PodRunning)
	}},
	{"plugin restarts", func(s *sample) {
		s.stopPlugin()
		s.awaitDevices(2, 0)
		s.startPlugin()
		s.awaitDevices(2, 2)
	}},
	{"pod deleted while the agent is down", func(s *sample) {
		s.stopAgent()
		s.delete("two")
		s.startAgent()
		s.awaitGone("two")
		s.pod("three", 1)
		s.await("three", v1.PodRunning)
	}},
	{"both restart", func(s *sample) {
		s.stopAgent()
		s.stopPlugin()
		s.node.Start()
		s.startPlugin()
		s.awaitDevices(2, 2)
		s.delete("one")
		s.awaitGone("one")
		s.pod("four", 1)
		s.await("four", v1.PodRunning)
	}},
}

// samplePlaces runs the plugin with its fixed directories mapped to a node's. In the registry's
// mode the plugin sees a file DEPRECATION, which no agent creates: without it the plugin also calls
// Register, with a socket that does not exist, and ends when a kubelet refuses that.
const samplePlaces = `set -e
mount -t tmpfs numalet-test /var/lib
mount -t tmpfs numalet-test /run
mkdir -p /var/lib/kubelet/device-plugins /var/lib/kubelet/plugins_registry /run/cdi
case $PLUGIN_SOCK_DIR in
*registry) touch /var/lib/kubelet/device-plugins/DEPRECATION ;;
*) mount --bind "$1/device-plugins" /var/lib/kubelet/device-plugins ;;
esac
mount --bind "$1/plugins_registry" /var/lib/kubelet/plugins_registry
mount --bind "$2" /run/cdi
mount --bind "$3" /tmp
shift 3
exec "$@"`

// startPlugin starts the plugin, which registers.
func (s *sample) startPlugin() {
	s.Helper()
	cmd := exec.Command("unshare", "--mount", "sh", "-c", samplePlaces, "sample", s.node.Root, s.cdiDir,
		s.tmp(), filepath.Join(rig.Binaries(s), "sample-device-plugin"))
	places := "/var/lib/kubelet/device-plugins"
	if s.mode.registry {
		places = "/var/lib/kubelet/plugins_registry"
	}
	cmd.Env = append(os.Environ(), "PLUGIN_SOCK_DIR="+places)
	if s.mode.cdi {
		cmd.Env = append(cmd.Env, "CDI_ENABLED=1")
	}
	if s.mode.controlled {
		s.control()
		cmd.Env = append(cmd.Env, "REGISTER_CONTROL_FILE="+filepath.Join("/tmp", controlFile))
	}
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.awaitRegistration()
	before := s.count("managed explicitly")
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	ended := make(chan struct{})
	s.plugin, s.ended = cmd, ended
	go func() {
		defer close(ended)
		_ = cmd.Wait() // its log says why
	}()
	s.Cleanup(func() { _ = cmd.Process.Kill(); <-ended }) // it may have ended already
	if s.mode.controlled {
		s.eventually("the plugin waits for its control file", func() error {
			if s.count("managed explicitly") == before {
				return fmt.Errorf("it said\n%s", s.said())
			}
			return nil
		})
	}
	s.register()
}

// awaitRegistration waits until plugins can register: a starting agent removes their sockets.
func (s *sample) awaitRegistration() {
	s.Helper()
	s.eventually("plugins can register", func() error {
		conn, err := net.Dial("unix", filepath.Join(s.node.Root, "device-plugins", "kubelet.sock"))
		if err == nil {
			err = conn.Close()
		}
		return err
	})
}

func (s *sample) stopPlugin() {
	s.Helper()
	if err := s.plugin.Process.Signal(syscall.SIGTERM); err != nil {
		s.Fatal(err)
	}
	<-s.ended
	s.ended = nil
}

// controlFile is the path below the plugin's /tmp.
const controlFile = "control/registration"

// tmp returns the plugin's /tmp.
func (s *sample) tmp() string         { return filepath.Join(s.node.Dir, "tmp") }
func (s *sample) log() string         { return filepath.Join(s.node.Dir, "sample.log") }
func (s *sample) controlFile() string { return filepath.Join(s.tmp(), controlFile) }

// control creates the file whose removal makes the plugin register.
func (s *sample) control() {
	s.Helper()
	if err := os.MkdirAll(filepath.Dir(s.controlFile()), 0o700); err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(s.controlFile(), nil, 0o600); err != nil {
		s.Fatal(err)
	}
}

// register makes a controlled plugin register, once it serves again.
func (s *sample) register() {
	s.Helper()
	if !s.mode.controlled {
		return
	}
	served := filepath.Join(s.node.Root, "device-plugins", "dp.*")
	s.eventually("the plugin serves", func() error {
		if found, _ := filepath.Glob(served); len(found) == 0 {
			return fmt.Errorf("there is no %s", served)
		}
		return nil
	})
	s.control()
	if err := os.Remove(s.controlFile()); err != nil {
		s.Fatal(err)
	}
}

func (s *sample) said() string {
	raw, _ := os.ReadFile(s.log()) // none if the log is empty
	return string(raw)
}

func (s *sample) count(text string) int { return strings.Count(s.said(), text) }

// startAgent starts the agent, and waits until it knows the plugin, which ran before.
func (s *sample) startAgent() {
	s.Helper()
	before := s.count("ListAndWatch")
	s.node.Start()
	s.awaitRegistration() // by then the agent has removed the plugin's old socket, which register must not see
	s.register()
	s.eventually("the plugin is asked for its devices", func() error {
		if s.count("ListAndWatch") == before {
			return errors.New("it is not")
		}
		return nil
	})
	s.awaitDevices(2, 2)
}

func (s *sample) stopAgent() {
	s.Helper()
	if err := s.node.Stop(); err != nil {
		s.Errorf("the agent stopped: %v", err)
	}
}

// obstruct makes the plugin fail in Allocate: it cannot remove a path that is mounted where it
// runs.
func (s *sample) obstruct() (stop func()) {
	s.Helper()
	for _, id := range sampleDevices {
		_ = os.Remove(filepath.Join(s.tmp(), id)) // it exists if a container had the device
		if err := os.Mkdir(filepath.Join(s.tmp(), id), 0o700); err != nil {
			s.Fatal(err)
		}
		out, err := exec.Command("nsenter", "--mount", "--target", fmt.Sprint(s.plugin.Process.Pid),
			"mount", "-t", "tmpfs", "numalet-test", filepath.Join("/tmp", id)).CombinedOutput()
		if err != nil {
			s.Fatalf("%v: %s", err, out)
		}
	}
	return func() {
		for _, id := range sampleDevices { // from another mount namespace this removes the mount too
			if err := os.Remove(filepath.Join(s.tmp(), id)); err != nil {
				s.Error(err)
			}
		}
	}
}

func (s *sample) pod(name string, devices int) {
	s.Helper()
	made, err := pod{name: name, spec: fmt.Sprintf(
		`{containers: [{name: main, image: WORK, resources: {limits: {%s: %d}}}]}`,
		sampleResource, devices)}.object(s.node.Name)
	if err == nil {
		_, err = s.pods().Create(s.Context(), made, metav1.CreateOptions{})
	}
	if err != nil {
		s.Fatal(err)
	}
}
