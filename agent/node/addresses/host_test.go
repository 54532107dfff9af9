package addresses

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
)

const inside = "NUMALET_TEST_ADDRESSES"

// TestHost runs itself in new network namespaces with different interfaces.
func TestHost(t *testing.T) {
	if scene := os.Getenv(inside); scene != "" {
		testScene(t, scene)
		return
	}
	if os.Getuid() != 0 {
		t.Skip("a network namespace is root's to make")
	}
	for _, scene := range []string{"bridge and uplink", "IPv6 only", "both families", "down", "none"} {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestHost$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"="+scene)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if out, err := cmd.CombinedOutput(); err != nil ||
			!strings.Contains(string(out), "--- PASS: TestHost") {
			t.Errorf("%s: %v\n%s", scene, err, out)
		}
	}
}

func testScene(t *testing.T, scene string) {
	const bridge, uplink, uplink6 = "172.17.0.1", "10.0.0.5", "fd00::5"
	want, want6 := "", ""
	up(t, "lo")
	switch scene {
	case "bridge and uplink": // the bridge is the first interface
		add(t, "docker0", bridge+"/16")
		add(t, "eth0", uplink+"/24")
		route(t, "eth0", "10.0.0.1")
		want, want6 = uplink, uplink
	case "IPv6 only":
		add(t, "eth0", uplink6+"/64")
		route(t, "eth0", "fd00::1")
		want, want6 = uplink6, uplink6
	case "both families":
		add(t, "eth0", uplink+"/24", uplink6+"/64")
		route(t, "eth0", "10.0.0.1")
		route(t, "eth0", "fd00::1")
		want, want6 = uplink, uplink6
	case "down":
		add(t, "eth0", uplink+"/24")
		set(t, "eth0", netlink.LinkSetDown)
		add(t, "eth1", bridge+"/16") // no route leads through it, but there is no other
		want, want6 = bridge, bridge
	}
	for asked, want := range map[string]string{"": want, "::": want6} {
		cfg := Config{Node: "node.invalid", Asked: parse(asked)}
		got, err := cfg.find(t.Context(), machine(), nil)
		if list := strings.Join(texts(got), ","); list != want || (err == nil) != (want != "") {
			t.Errorf("asked for %q: %s, %v; want %q", asked, list, err, want)
		}
	}
}

// add makes an interface with addresses; its peer is up too.
func add(t *testing.T, name string, has ...string) {
	t.Helper()
	err := netlink.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "p"})
	if err != nil {
		t.Fatal(err)
	}
	up(t, name)
	up(t, name+"p")
	for _, text := range has {
		addr, err := netlink.ParseAddr(text)
		if err != nil {
			t.Fatal(err)
		}
		addr.Flags = syscall.IFA_F_NODAD // usable at once
		set(t, name, func(l netlink.Link) error { return netlink.AddrAdd(l, addr) })
	}
}

func up(t *testing.T, name string) {
	t.Helper()
	set(t, name, netlink.LinkSetUp)
}

func set(t *testing.T, name string, f func(netlink.Link) error) {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = f(link)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func route(t *testing.T, name, via string) {
	t.Helper()
	set(t, name, func(l netlink.Link) error {
		return netlink.RouteAdd(&netlink.Route{
			LinkIndex: l.Attrs().Index, Gw: net.ParseIP(via), Dst: nil})
	})
}
