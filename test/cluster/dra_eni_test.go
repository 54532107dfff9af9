package cluster_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
	"github.com/numalet/numalet/deviceplugin/dradriver"
	"github.com/numalet/numalet/deviceplugin/eni"
	"github.com/numalet/numalet/deviceplugin/eni/dra"
	"github.com/numalet/numalet/test/cluster/rig"
	containerdrig "github.com/numalet/numalet/test/containerd/rig"
	"github.com/numalet/numalet/test/harness"
)

// interfaceClaims asks for one interface of the driver.
const interfaceClaims = `{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: %[1]s},
 spec: {selectors: [{cel: {expression: "device.driver == '%[1]s' &&
 device.attributes['%[1]s'].resource == '` + eniResource + `'"}}]}}
---
{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: nic},
 spec: {spec: {devices: {requests: [{name: nic, exactly: {deviceClassName: %[1]s}}]}}}}
`

// interfacePod has a claim for an interface. Its container runs again when it is told to end.
const interfacePod = `{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {
 automountServiceAccountToken: false, terminationGracePeriodSeconds: 1,
 resourceClaims: [{name: nic, resourceClaimTemplateName: nic}],
 containers: [{name: main, image: "` + containerdrig.ShellImage + `",
 command: [sh, -c, "while [ ! -e /end ]; do sleep 0.1; done"],
 resources: {limits: {memory: 32Mi}, claims: [{name: nic}]}}]}}`

// TestInterfacesByClaim: the container runtime moves an interface into a pod that has a claim for it.
// The interface stays with the pod when its container starts again, is taken from the others' claims,
// and comes back as it was when the pod is gone, also after the driver was started again.
func TestInterfacesByClaim(t *testing.T) {
	containerdrig.Require(t)
	containerdrig.NewRunc(t)
	for _, name := range []string{"kubelet", "numalet"} {
		t.Run(name, func(t *testing.T) {
			c := rig.Start(t)
			nics := newNICs(t)
			agent, d, _ := containerdrig.Node(t)
			containerdrig.ImportShell(t, d)
			if name == "kubelet" {
				rig.StockKubelet(t, agent)
			}
			n := c.Join(agent, "interfaces-"+name)
			n.Start()
			driver := "eni-" + name + ".example.com"
			stop := nics.offerToClaims(n, d, driver)
			c.AwaitReady(n.Name)
			c.Apply(fmt.Sprintf(interfaceClaims, driver))
			given := map[string]string{}
			for _, pod := range []string{"one", "two"} {
				c.Apply(fmt.Sprintf(interfacePod, pod))
				c.MustRun("wait", "--for=condition=Ready", "pod/"+pod, "--timeout=1m")
				given[pod] = nics.inside(c, pod)
				nics.keep(given[pod])
			}
			if given["one"] == given["two"] {
				t.Errorf("the pods have %v", given)
			}
			_, _ = c.Run("exec", "one", "--", "sh", "-c", "> /end") // it may end with the container
			eventually(t, c, "1", "get", "pod", "one", "-o",
				"jsonpath={.status.containerStatuses[0].restartCount}")
			c.MustRun("wait", "--for=condition=Ready", "pod/one", "--timeout=1m")
			if again := nics.inside(c, "one"); again != given["one"] {
				t.Errorf("it had %s, and has %s", given["one"], again)
			}
			stop()
			nics.offerToClaims(n, d, driver)
			c.Apply(fmt.Sprintf(interfacePod, "three"))
			eventually(t, c, "Unschedulable", "get", "pod", "three", "-o",
				"jsonpath={.status.conditions[?(@.type==\"PodScheduled\")].reason}")
			c.MustRun("delete", "pod", "one", "--timeout=1m")
			c.MustRun("wait", "--for=condition=Ready", "pod/three", "--timeout=1m")
			if got := nics.inside(c, "three"); got != given["one"] {
				t.Errorf("the third pod has %s, want %s", got, given["one"])
			}
			nics.keep(given["one"])
			c.MustRun("delete", "pod", "two", "three", "--timeout=1m")
			nics.awaitBack(d)
		})
	}
}

// awaitBack waits until no claim has an interface.
func (n nics) awaitBack(d *containerd.Daemon) {
	n.t.Helper()
	harness.Eventually(n.t, "the interfaces are back, and no claim is on record", func() error {
		for _, nic := range n.all {
			if l, err := netlink.LinkByName(nic.name); err != nil || l.Attrs().HardwareAddr.String() != nic.mac {
				return fmt.Errorf("%s: %w", nic.name, err)
			}
		}
		left, err := filepath.Glob(filepath.Join(d.CDIDir(), "*-claim_*"))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("there are %q", left)
		}
		return err
	})
}

// keep has a process keep the network namespace where an interface is. Hardware would come home when
// that ends; the end of a pair ends with it.
func (n nics) keep(address string) {
	n.t.Helper()
	at := slices.IndexFunc(n.all, func(one nic) bool { return one.address == address })
	paths, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		n.t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, path := range paths {
		namespace, err := os.Readlink(path)
		if err != nil || seen[namespace] { // a process has ended, or shares that of another one
			continue
		}
		seen[namespace] = true
		sleep := exec.Command("nsenter", "--net="+path, "sleep", "600")
		if exec.Command("nsenter", "--net="+path, "ip", "link", "show", n.all[at].name).Run() != nil {
			continue
		}
		if err := sleep.Start(); err != nil {
			n.t.Fatal(err)
		}
		n.t.Cleanup(func() {
			_ = sleep.Process.Kill() // it has not ended
			_ = sleep.Wait()
		})
		return
	}
	n.t.Fatalf("%s is in the network namespace of no process", n.all[at].name)
}

// inside checks what a pod has, and returns the PCI address of its interface.
func (n nics) inside(c rig.Cluster, pod string) string {
	n.t.Helper()
	seen := strings.Fields(c.MustRun("exec", pod, "--", "sh", "-c",
		"echo $PCIDEVICE_EXAMPLE_COM_ENI $ENI_EXAMPLE_COM_ENI_NAMES; "+
			"cat /sys/class/net/$ENI_EXAMPLE_COM_ENI_NAMES/address"))
	at := -1
	if len(seen) == 3 {
		at = slices.IndexFunc(n.all, func(one nic) bool { return one.address == seen[0] })
	}
	if at < 0 || n.all[at].name != seen[1] || n.all[at].mac != seen[2] {
		n.t.Fatalf("%s has %q, of %+v", pod, seen, n.all)
	}
	if _, err := netlink.LinkByName(n.all[at].name); err == nil {
		n.t.Errorf("%s: %s is still outside", pod, n.all[at].name)
	}
	return seen[0]
}

// offerToClaims runs the driver of claims, in this process and with the rights of the node, until
// the test ends or it is stopped.
func (n nics) offerToClaims(node rig.Node, d *containerd.Daemon, driver string) (stop func()) {
	n.t.Helper()
	places := eni.Places{
		PodResources: filepath.Join(node.Root, "pod-resources/kubelet.sock"),
		State:        filepath.Join(n.dir, "state"), CDI: d.CDIDir(),
		Sysfs: filepath.Join(n.dir, "sys"), Proc: "/proc", Dev: "/dev",
		Namespaces: []string{"/run/netns"},
	}
	network, err := eni.Netlink(places)
	if err != nil {
		n.t.Fatal(err)
	}
	rest, err := clientcmd.BuildConfigFromFlags("", node.Kubeconfig)
	if err != nil {
		n.t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		n.t.Fatal(err)
	}
	harness.Eventually(n.t, "the node is there", func() error {
		_, err := client.CoreV1().Nodes().Get(n.t.Context(), node.Name, metav1.GetOptions{})
		return err
	})
	said, err := os.OpenFile(filepath.Join(n.dir, "driver.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY,
		0o600)
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		err = dra.Run(ctx, dra.Config{Config: eni.Config{
			Interfaces: []eni.Rule{{Resource: eniResource, Vendors: []string{"15b3"}}},
			NodeIPs:    n.addressesOfNode(), Places: places, Log: log.New(said, "", log.LstdFlags),
			Kernel: asHardware{network, n}, Mover: asHardware{network, n}},
			Driver: dradriver.Config{Driver: driver, Node: node.Name, Root: node.Root,
				Client: client, Program: "numalet-eni"}})
	})
	stop = sync.OnceFunc(func() {
		cancel()
		ended.Wait()
		if err := network.Close(); err != nil {
			n.t.Error(err)
		}
		if text, _ := os.ReadFile(said.Name()); err != nil || n.t.Failed() {
			n.t.Errorf("the driver ended with %v and said\n%s", err, text)
		}
		_ = said.Close() // only written to
	})
	n.t.Cleanup(stop)
	return stop
}
