package guest_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/numalet/numalet/deviceplugin/eni"
)

const (
	eniResource = "example.com/eni"
	// infoDir has the files that tell network plugins about interfaces.
	infoDir = home + "/devinfo"
	// nodeIP is on the interface that the node lives on.
	nodeIP = "192.0.2.9"
)

// withENI asks for an interface that is put into the container.
func withENI() ask { return ask{cpu: "2", memory: "64Mi", enis: 1} }

// testInterfaces: a container has the interface of its own node, moved in by the runtime, also when
// it was started again; after the pod it is back, as it was.
func testInterfaces(g guest) {
	own := settle(g.t)
	startENI(g.t, g.Root, "eni", "--resource="+eniResource, "--driver=virtio_net", "--move=runtime")
	g.run(map[string]ask{"eni": withENI()})
	l, address, name, mac := g.moved("eni")
	if name == own || pciNode(g.t, address) == 0 {
		g.t.Errorf("it was given %s, which the node lives on", name)
	}
	pid := l.pid
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		g.t.Fatal(err)
	}
	g.Eventually("the container runs again", func() error {
		if pod := g.running("eni"); pod.Status.ContainerStatuses[0].RestartCount == 0 {
			return fmt.Errorf("it has not been started again")
		}
		return nil
	})
	if _, again, _, _ := g.moved("eni"); again != address {
		g.t.Errorf("it had %s, and has %s", address, again)
	}
	g.remove("eni")
	g.awaitBack(address, name, mac)
}

// settle has the node live on the interface of its first NUMA node.
func settle(t *testing.T) (own string) {
	t.Helper()
	own = interfaceOf(t, functionOn(t, 0))
	ip(t, "addr add "+nodeIP+"/24 dev "+own)
	ip(t, "link set "+own+" up")
	return own
}

func ip(t *testing.T, args string) {
	t.Helper()
	out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %s: %v: %s", args, err, out)
	}
}

// awaitBack waits until an interface is the host's again, as it was.
func (g guest) awaitBack(address, name, mac string) {
	g.t.Helper()
	g.Eventually("interface "+name+" is back and free", func() error {
		back, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		if back.HardwareAddr.String() != mac {
			return fmt.Errorf("it is %v", back)
		}
		return nobodyHas(filepath.Join(home, "eni/interfaces.json"), address)
	})
	row(g.t, "%s: %s is %s again", address, mac, name)
}

// moved is a container with the interface that it was given. It must be in the container's network
// and not in the host's, on the node of the container's CPUs.
func (g guest) moved(name string) (l lives, address, interfaceName, mac string) {
	g.t.Helper()
	l = g.look(name)
	env := l.report.Env
	address, mac = env["PCIDEVICE_EXAMPLE_COM_ENI"], env["ENI_EXAMPLE_COM_ENI_MACS"]
	interfaceName = env["ENI_EXAMPLE_COM_ENI_NAMES"]
	inside := said(g.t, "/proc", strconv.Itoa(l.pid), "net/dev")
	nodes := nodesOf(g.t, l.cpus(g.t))
	row(g.t, "%s: %s (%s) of node %d, CPUs %s of nodes %s", name, interfaceName, address,
		pciNode(g.t, address), l.cpus(g.t), nodes)
	if !strings.Contains(inside, interfaceName+":") {
		g.t.Errorf("%s is not in the container:\n%s", interfaceName, inside)
	}
	if _, err := net.InterfaceByName(interfaceName); err == nil {
		g.t.Errorf("%s is still the host's", interfaceName)
	}
	if nodes.Size() != 1 || !nodes.Contains(pciNode(g.t, address)) {
		g.t.Errorf("%s is on node %d, the container's CPUs are on nodes %s", interfaceName,
			pciNode(g.t, address), nodes)
	}
	return l, address, interfaceName, mac
}

// startENI offers interfaces that the flags choose, but the node's. name is that of its folder.
func startENI(t *testing.T, root, name string, flags ...string) {
	t.Helper()
	cmd := exec.Command(dir+"/numalet", append([]string{"plugin", "eni", "--node-ip=" + nodeIP,
		"--dir=" + filepath.Join(root, "device-plugins"),
		"--pod-resources=" + filepath.Join(root, "pod-resources/kubelet.sock"),
		"--cdi-dir=" + filepath.Join(runtimeDir, "cdi"), "--state-dir=" + filepath.Join(home, name),
		"--device-info-dir=" + infoDir}, flags...)...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("numalet plugin eni: %v", err)
		}
	})
}

// nobodyHas reads the plugin's records.
func nobodyHas(file, address string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var state struct {
		Records eni.Records `json:"records"`
	}
	if err := json.Unmarshal(text, &state); err != nil {
		return err
	}
	if r := state.Records[address]; r.Phase != eni.Free {
		return fmt.Errorf("it is %s: %+v", r.Phase, r)
	}
	return nil
}

// functionOn returns the address of a network function on a node.
func functionOn(t *testing.T, node int) string {
	t.Helper()
	for _, address := range pciFunctions(t, nicClass) {
		if pciNode(t, address) == node {
			return address
		}
	}
	t.Fatalf("node %d has no network function", node)
	return ""
}

// interfaceOf returns the name of a function's interface.
func interfaceOf(t *testing.T, address string) string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"net/*", "virtio*/net/*"} {
		found, err := filepath.Glob(filepath.Join(pciDir, address, pattern))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	if len(all) != 1 {
		t.Fatalf("interfaces of %s: %v", address, all)
	}
	return filepath.Base(all[0])
}
