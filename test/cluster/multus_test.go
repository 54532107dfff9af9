package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/numalet/numalet/deviceplugin/eni"
	"github.com/numalet/numalet/test/cluster/rig"
	containerdrig "github.com/numalet/numalet/test/containerd/rig"
	"github.com/numalet/numalet/test/harness"
)

// TestMultus: a pod that requests an interface and a network on it gets the interface that the
// agent has assigned. Multus asks the agent which one that is, finds it by the plugin's device-info
// file, lets host-device move it, and writes it into the pod's status.
func TestMultus(t *testing.T) {
	c := rig.Start(t)
	applyFile(t, c, "testdata/networkattachmentdefinition.yaml")
	nics := newNICs(t)
	plugins := filepath.Join(nics.dir, "cni")
	containerdrig.Require(t)
	containerdrig.NetworkPlugins(t, plugins)
	installMultus(t, plugins)
	agent, d, _ := containerdrig.Node(t)
	containerdrig.ImportShell(t, d)
	nics.confine(agent, plugins)
	configureMultus(t, c, d.NetworkFile(), nics.dir)
	n := c.Join(agent, "multus")
	n.Start()
	nics.offer(agent)
	c.AwaitReady(n.Name)
	c.Apply(`{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: fast,
 annotations: {k8s.v1.cni.cncf.io/resourceName: ` + eniResource + `}},
 spec: {config: '{"cniVersion": "1.0.0", "type": "host-device"}'}}`)
	given := map[string]string{}
	for _, pod := range []string{"one", "two"} {
		c.Apply(`{apiVersion: v1, kind: Pod, metadata: {name: ` + pod + `,
 annotations: {k8s.v1.cni.cncf.io/networks: fast}}, spec: {
 automountServiceAccountToken: false, terminationGracePeriodSeconds: 0,
 containers: [{name: main, image: "` + containerdrig.ShellImage + `", command: [sleep, "3600"],
 resources: {limits: {` + eniResource + `: 1}}}]}}`)
		c.MustRun("wait", "--for=condition=Ready", "pod/"+pod, "--timeout=1m")
		given[pod] = nics.check(c, pod)
	}
	if got := slices.Sorted(maps.Values(given)); !slices.Equal(got, nics.addresses()) {
		t.Errorf("the pods have %v", given)
	}
	c.MustRun("delete", "pod", "one", "two", "--timeout=1m")
	harness.Eventually(t, "both interfaces are back", func() error {
		for _, nic := range nics.all {
			if _, err := netlink.LinkByName(nic.name); err != nil {
				return fmt.Errorf("%s: %w", nic.name, err)
			}
		}
		return nil
	})
}

// nic is one end of a veth pair that stands for the interface of a PCI function.
type nic struct{ address, name, mac string }

// nics are such interfaces, with a sysfs that describes them so.
type nics struct {
	t   *testing.T
	dir string
	all []nic
}

func newNICs(t *testing.T) nics {
	t.Helper()
	dir, err := os.MkdirTemp("", "nl-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	all := nics{t: t, dir: dir}
	for i, address := range []string{"0000:3b:00.1", "0000:d8:00.1"} {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = fmt.Sprintf("nl%d-%d", i, os.Getpid())
		pair := &netlink.Veth{LinkAttrs: attrs, PeerName: "p" + attrs.Name}
		if err := netlink.LinkAdd(pair); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // the other end stays here; deleting it deletes both
			peer, err := netlink.LinkByName(pair.PeerName)
			if err == nil {
				err = netlink.LinkDel(peer)
			}
			if err != nil {
				t.Error(err)
			}
		})
		made, err := netlink.LinkByName(attrs.Name)
		if err != nil {
			t.Fatal(err)
		}
		one := nic{address, attrs.Name, made.Attrs().HardwareAddr.String()}
		all.all = append(all.all, one)
		all.describe(one)
	}
	return all
}

// describe adds an interface of a PCI function to the test's sysfs.
func (n nics) describe(one nic) {
	n.t.Helper()
	sys := filepath.Join(n.dir, "sys")
	function := filepath.Join(sys, "devices/pci0000:00", one.address)
	for _, dir := range []string{
		filepath.Join(function, "net", one.name), filepath.Join(function, "infiniband/mlx5_0"),
		filepath.Join(sys, "bus/pci/devices"), filepath.Join(sys, "bus/pci/drivers/mlx5_core"),
	} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			n.t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		filepath.Join(function, "driver"):                  "../../../bus/pci/drivers/mlx5_core",
		filepath.Join(sys, "bus/pci/devices", one.address): "../../../devices/pci0000:00/" + one.address,
	} {
		if err := os.Symlink(to, link); err != nil {
			n.t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"vendor": "0x15b3", "device": "0x101e", "numa_node": "0",
	} {
		if err := os.WriteFile(filepath.Join(function, name), []byte(text+"\n"), 0o644); err != nil {
			n.t.Fatal(err)
		}
	}
}

func (n nics) addresses() (all []string) {
	for _, one := range n.all {
		all = append(all, one.address)
	}
	return all
}

// confined runs a network plugin with the test's agent socket, device-info files and sysfs, since
// the plugin has fixed paths for them.
const confined = `#!/bin/sh
exec unshare --mount /bin/sh -c '
set -e
mount --bind %[1]s/sys /sys
mount -t tmpfs none /run
mkdir -p /run/k8s.cni.cncf.io
mount --bind %[1]s/k8s /run/k8s.cni.cncf.io
mount -t tmpfs none /var/lib
mkdir -p /var/lib/kubelet/pod-resources
mount --bind %[2]s /var/lib/kubelet/pod-resources
exec %[3]s/multus.real'
`

// confine makes Multus use the socket of an agent, whose folder it creates.
func (n nics) confine(agent *harness.Node, plugins string) {
	n.t.Helper()
	socket := filepath.Join(agent.Root, "pod-resources")
	for _, dir := range []string{socket, filepath.Join(n.dir, "k8s")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			n.t.Fatal(err)
		}
	}
	script := fmt.Sprintf(confined, n.dir, socket, plugins)
	if err := os.WriteFile(filepath.Join(plugins, "multus"), []byte(script), 0o755); err != nil {
		n.t.Fatal(err)
	}
}

// installMultus makes a folder with Multus beside the host's network plugins.
func installMultus(t *testing.T, plugins string) {
	t.Helper()
	err := os.MkdirAll(plugins, 0o755)
	found, globErr := filepath.Glob("/usr/lib/cni/*")
	if err != nil || globErr != nil {
		t.Fatal(err, globErr)
	}
	for _, plugin := range found {
		if err := os.Symlink(plugin, filepath.Join(plugins, filepath.Base(plugin))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(containerdrig.Multus(t), filepath.Join(plugins, "multus.real")); err != nil {
		t.Fatal(err)
	}
}

// configureMultus configures Multus in front of containerd's network, to which it delegates.
func configureMultus(t *testing.T, c rig.Cluster, network, dir string) {
	t.Helper()
	first, err := os.ReadFile(network)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{
		"cniVersion": "1.0.0", "name": "multus", "type": "multus", "kubeconfig": c.AdminKubeconfig(),
		"cniDir": filepath.Join(dir, "cache"), "binDir": filepath.Join(dir, "cni"),
		"logFile": filepath.Join(dir, "multus.log"), "logLevel": "debug",
		"delegates": []json.RawMessage{first},
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(filepath.Dir(network), "00-multus.conf"), text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := os.ReadFile(filepath.Join(dir, "multus.log"))
			t.Logf("Multus said\n%s", text)
		}
	})
}

// appear says in the test's sysfs of which function an interface of that name is.
func (n nics) appear(one nic, name string) error {
	sys := filepath.Join(n.dir, "sys")
	at := filepath.Join(sys, "class/net", name)
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	err := os.Symlink(filepath.Join(sys, "devices/pci0000:00", one.address), filepath.Join(at, "device"))
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// asHardware is the kernel's network, with ends of pairs that look like hardware. They keep their
// function when they get another name.
type asHardware struct {
	eni.Network
	nics
}

func (a asHardware) Links() ([]eni.Link, error) {
	links, err := a.Network.Links()
	for i := range links {
		if links[i].Kind != "veth" {
			continue
		}
		links[i].Kind = ""
		for _, one := range a.all {
			if one.mac == links[i].State.MAC {
				err = errors.Join(err, a.appear(one, links[i].State.Name))
			}
		}
	}
	return links, err
}

func (a asHardware) Fetch(i eni.Interface) error { return a.Network.Fetch(asVeth(i)) }

func (a asHardware) User(i eni.Interface) (int, error) { return a.Network.User(asVeth(i)) }

func asVeth(i eni.Interface) eni.Interface {
	i.Link.Kind = "veth"
	return i
}

// offer runs the plugin, in this process, until the test ends.
func (n nics) offer(agent *harness.Node) {
	n.t.Helper()
	places := eni.Places{
		Plugins:      filepath.Join(agent.Root, "device-plugins"),
		PodResources: filepath.Join(agent.Root, "pod-resources/kubelet.sock"),
		State:        filepath.Join(n.dir, "state"), CDI: filepath.Join(n.dir, "cdi"),
		Infos: filepath.Join(n.dir, "k8s/devinfo/dp"), Sysfs: filepath.Join(n.dir, "sys"),
		Proc: "/proc", Dev: "/dev", Namespaces: []string{"/run/netns"},
	}
	network, err := eni.Netlink(places)
	if err != nil {
		n.t.Fatal(err)
	}
	var said strings.Builder
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		err = eni.Run(ctx, eni.Config{
			Interfaces: []eni.Rule{{Resource: eniResource, Vendors: []string{"15b3"}}},
			NodeIPs:    n.addressesOfNode(), Places: places, Log: log.New(&said, "", log.LstdFlags),
			Kernel: asHardware{network, n}, Mover: asHardware{network, n},
		})
	})
	n.t.Cleanup(func() {
		cancel()
		ended.Wait()
		if err := network.Close(); err != nil {
			n.t.Error(err)
		}
		if err != nil || n.t.Failed() {
			n.t.Errorf("the plugin ended with %v and said\n%s", err, said.String())
		}
	})
}

// addressesOfNode returns the addresses of this machine's interfaces.
func (n nics) addressesOfNode() (all []string) {
	n.t.Helper()
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, a := range addresses {
		if !a.IP.IsLoopback() {
			all = append(all, a.IP.String())
		}
	}
	return all
}

// check checks what a pod has, and returns the PCI address of its interface.
func (n nics) check(c rig.Cluster, pod string) string {
	n.t.Helper()
	seen := strings.Fields(c.MustRun("exec", pod, "--", "sh", "-c",
		"echo $PCIDEVICE_EXAMPLE_COM_ENI; cat /sys/class/net/net1/address"))
	at := -1
	if len(seen) == 2 {
		at = slices.IndexFunc(n.all, func(one nic) bool { return one.address == seen[0] })
	}
	if at < 0 || n.all[at].mac != seen[1] {
		n.t.Fatalf("%s: its environment and its net1 have %q, of %+v", pod, seen, n.all)
	}
	if _, err := netlink.LinkByName(n.all[at].name); err == nil {
		n.t.Errorf("%s: %s is still outside", pod, n.all[at].name)
	}
	var networks []map[string]any
	text := c.MustRun("get", "pod", pod, "-o",
		`jsonpath={.metadata.annotations.k8s\.v1\.cni\.cncf\.io/network-status}`)
	if err := json.Unmarshal([]byte(text), &networks); err != nil {
		n.t.Fatalf("%v in the network status %q", err, text)
	}
	want := fmt.Sprint(map[string]any{"type": "pci", "version": "1.1.0", "pci": map[string]any{
		"pci-address": seen[0], "rdma-device": "mlx5_0"}})
	if len(networks) != 2 || networks[1]["interface"] != "net1" || networks[1]["mac"] != seen[1] ||
		fmt.Sprint(networks[1]["device-info"]) != want {
		n.t.Errorf("%s: its network status is\n%s\nwant the device-info %s", pod, text, want)
	}
	return seen[0]
}
