package guest_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/numalet/numalet/agent/placement/devices"
	"github.com/numalet/numalet/test/harness"
)

const (
	rdmaResource = "example.com/rdma"
	rdmaDevice   = "rxe0"
	rdmaNodes    = "/dev/infiniband"
)

// TestFunctionsNode: the node has interfaces with virtual functions, and RDMA over an interface.
func TestFunctionsNode(t *testing.T) {
	modprobe := []string{"-a", "igb", "igbvf", "rdma_rxe", "ib_uverbs", "ib_umad", "rdma_ucm"}
	if out, err := exec.Command("modprobe", modprobe...).CombinedOutput(); err != nil {
		t.Fatalf("modprobe: %v: %s", err, out)
	}
	settle(t)
	g := firstGuest(t)
	g.Settings["topologyManagerPolicy"] = "single-numa-node"
	g.Start()
	physical, carrier := functionOn(t, 1), functionOn(t, 3)
	if err := netlink.RdmaLinkAdd(rdmaDevice, "rxe", interfaceOf(t, carrier)); err != nil {
		t.Fatalf("make %s: %v", rdmaDevice, err)
	}
	virtual := makeVirtual(t, physical, 2)
	startENI(t, g.Root, "eni", "--resource="+eniResource,
		"--virtual-of="+interfaceOf(t, physical), "--move=runtime")
	startENI(t, g.Root, "rdma", "--resource="+rdmaResource, "--rdma", "--move=network")
	t.Run("virtual functions", func(t *testing.T) { testVirtual(g.as(t), physical, virtual) })
	t.Run("RDMA devices", func(t *testing.T) { testRDMA(g.as(t), carrier) })
	t.Run("virtual functions that go", func(t *testing.T) { testGone(g.as(t), physical) })
}

// makeVirtual sets a physical function up and has it make virtual ones, whose addresses are
// returned. They do not find it as long as it is down.
func makeVirtual(t *testing.T, physical string, n int) (addresses []string) {
	t.Helper()
	name := interfaceOf(t, physical)
	ip(t, "link set "+name+" up")
	harness.Eventually(t, name+" has a carrier", func() error {
		if text := said(t, "/sys/class/net", name, "carrier"); text != "1" {
			return fmt.Errorf("carrier: %s", text)
		}
		return nil
	})
	setVirtual(t, physical, n)
	for i := range n {
		to, err := os.Readlink(filepath.Join(pciDir, physical, fmt.Sprintf("virtfn%d", i)))
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, filepath.Base(to))
	}
	return addresses
}

func setVirtual(t *testing.T, physical string, n int) {
	t.Helper()
	file := filepath.Join(pciDir, physical, "sriov_numvfs")
	if err := os.WriteFile(file, []byte(fmt.Sprint(n)), 0); err != nil {
		t.Fatal(err)
	}
}

// testVirtual: the virtual functions are offered, and not the physical one; containers have them
// moved in, and they are back after that.
func testVirtual(g guest, physical string, virtual []string) {
	g.awaitOffered(eniResource, 1, virtual...)
	g.run(map[string]ask{"vf": withENI(), "vf2": withENI()})
	_, address, name, mac := g.moved("vf")
	_, address2, name2, mac2 := g.moved("vf2")
	if given := []string{address, address2}; !slices.Equal(slices.Sorted(slices.Values(given)),
		slices.Sorted(slices.Values(virtual))) {
		g.t.Errorf("the containers have %v, the virtual functions are %v", given, virtual)
	}
	file := filepath.Join(infoDir, "example.com-eni-"+address+"-device.json")
	if text := said(g.t, file); !strings.Contains(text, `"pf-pci-address":"`+physical+`"`) {
		g.t.Errorf("%s does not name %s: %s", file, physical, text)
	}
	g.awaitOffered(eniResource, 1, virtual...) // the capacity is the same while they are away
	g.remove("vf", "vf2")
	g.awaitBack(address, name, mac)
	g.awaitBack(address2, name2, mac2)
}

// testRDMA: a container has the device nodes of its interface's RDMA device, another one has none.
// The RDMA device is software's and goes when its interface is moved: the container has the host's
// network.
func testRDMA(g guest, carrier string) {
	g.awaitOffered(rdmaResource, 3, carrier)
	g.run(map[string]ask{"rdma": {cpu: "2", memory: "64Mi", rdmas: 1}, "plain": {}})
	l := g.look("rdma")
	if nodes := nodesOf(g.t, l.cpus(g.t)); nodes.String() != "3" {
		g.t.Errorf("its CPUs %s are on nodes %s, its interface on 3", l.cpus(g.t), nodes)
	}
	want, got := map[string]uint64{}, l.rdma()
	entries, err := os.ReadDir(rdmaNodes)
	if err != nil {
		g.t.Fatal(err)
	}
	for _, e := range entries {
		var stat unix.Stat_t
		path := filepath.Join(rdmaNodes, e.Name())
		if err := unix.Stat(path, &stat); err != nil {
			g.t.Fatal(err)
		}
		if stat.Mode&unix.S_IFMT == unix.S_IFCHR {
			want[path] = stat.Rdev
		}
	}
	row(g.t, "%s over %s: %v", rdmaDevice, carrier, got)
	equal(g.t, want, got)
	if _, has := got[rdmaNodes+"/uverbs0"]; !has || len(got) < 3 {
		g.t.Errorf("verbs, management and the connection manager are to be there: %v", got)
	}
	about := l.report.Env["PCIDEVICE_EXAMPLE_COM_RDMA_INFO"]
	if !strings.Contains(about, `"rdma_devices":"`+rdmaDevice+`"`) {
		g.t.Errorf("the environment does not name %s: %s", rdmaDevice, about)
	}
	if none := g.look("plain").rdma(); len(none) > 0 {
		g.t.Errorf("a container that asked for nothing has %v", none)
	}
	g.remove("rdma", "plain")
}

// rdma are the device numbers of the container's nodes of RDMA devices, by path.
func (l lives) rdma() map[string]uint64 {
	out := map[string]uint64{}
	for _, d := range l.report.Devices {
		if strings.HasPrefix(d.Path, rdmaNodes+"/") && d.Type == "c" {
			out[d.Path] = unix.Mkdev(d.Major, d.Minor)
		}
	}
	return out
}

// testGone: virtual functions that are removed are not offered any more, until they are made again.
func testGone(g guest, physical string) {
	setVirtual(g.t, physical, 0)
	g.awaitOffered(eniResource, 1)
	g.awaitOffered(eniResource, 1, makeVirtual(g.t, physical, 2)...)
}

// offered are the devices of a resource as the agent has them.
func (g guest) offered(resource string) (rows []devices.Row) {
	g.t.Helper()
	var all []devices.Row
	if err := json.Unmarshal([]byte(g.Get("/devices")), &all); err != nil {
		g.t.Fatal(err)
	}
	for _, r := range all {
		if r.Resource == resource {
			rows = append(rows, r)
		}
	}
	return rows
}

// awaitOffered waits until a resource has exactly these devices, all healthy, on a node.
func (g guest) awaitOffered(resource string, node int, ids ...string) {
	g.t.Helper()
	slices.Sort(ids)
	g.Eventually(fmt.Sprintf("%s is %v", resource, ids), func() error {
		var got []string
		for _, r := range g.offered(resource) {
			if r.Health != "Healthy" || r.Nodes != fmt.Sprint(node) {
				return fmt.Errorf("%s is %s: %s, on node %s", r.ID, r.Health, r.Reason, r.Nodes)
			}
			got = append(got, r.ID)
		}
		if slices.Sort(got); !slices.Equal(got, ids) {
			return fmt.Errorf("it is %v", got)
		}
		return nil
	})
	for _, id := range ids {
		equal(g.t, node, pciNode(g.t, id))
	}
	row(g.t, "%s: %v on node %d", resource, ids, node)
}
