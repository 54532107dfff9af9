package eni

import (
	"errors"
	"fmt"
	"log"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// space is the test's own network namespace.
type space struct {
	t  *testing.T
	ns netns.NsHandle
	*netlink.Handle
}

// newSpace makes a network namespace, which ends with the test.
func newSpace(t *testing.T) space {
	t.Helper()
	s := makeSpace(t)
	t.Cleanup(s.end)
	return s
}

// end ends a network namespace, unless somebody else keeps it.
func (s space) end() {
	s.Close()
	_ = s.ns.Close() // only read from
}

// makeSpace makes a network namespace; the caller ends it.
func makeSpace(t *testing.T) space {
	t.Helper()
	runtime.LockOSThread()
	before, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	ns, err := netns.New()
	if errors.Is(err, unix.EPERM) {
		runtime.UnlockOSThread()
		leaveOut(t, "network namespaces need root")
	}
	// If it cannot go back, the thread stays locked and ends with the test.
	if err := errors.Join(err, netns.Set(before), before.Close()); err != nil {
		t.Fatal(err)
	}
	runtime.UnlockOSThread()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	return space{t, ns, h}
}

// leaveOut skips the test, or fails it in CI, where nothing may be skipped.
func leaveOut(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip("left out: " + why)
}

// must fails the test if there are errors.
func (s space) must(errs ...error) {
	s.t.Helper()
	if err := errors.Join(errs...); err != nil {
		s.t.Fatal(err)
	}
}

func (s space) link(name string) netlink.Link {
	s.t.Helper()
	l, err := s.LinkByName(name)
	s.must(err)
	return l
}

// add makes a link that is up, with addresses.
func (s space) add(l netlink.Link, addresses ...string) {
	s.t.Helper()
	s.must(s.LinkAdd(l), s.LinkSetUp(l))
	for _, text := range addresses {
		a, err := netlink.ParseAddr(text)
		s.must(err, s.AddrAdd(s.link(l.Attrs().Name), a))
	}
}

func named(name string) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name = name
	return a
}

// newHome makes a host's namespace: own0 has the default route, eth1 and eth2 are ends of pairs
// too, and mac0 is on eth2.
func newHome(t *testing.T) space {
	t.Helper()
	home := newSpace(t)
	home.add(&netlink.Veth{LinkAttrs: named("own0"), PeerName: "pown0"}, "192.0.2.2/24")
	home.must(home.LinkSetUp(home.link("pown0")), home.RouteAdd(&netlink.Route{LinkIndex: home.link("own0").Attrs().Index,
		Gw: net.ParseIP("192.0.2.1")}))
	for _, name := range []string{"eth1", "eth2"} {
		home.add(&netlink.Veth{LinkAttrs: named(name), PeerName: "p" + name})
		home.must(home.LinkSetUp(home.link("p" + name)))
	}
	a, err := netlink.ParseAddr("10.0.1.5/24")
	home.must(err, home.AddrAdd(home.link("eth1"), a))
	above := named("mac0")
	above.ParentIndex = home.link("eth2").Attrs().Index
	home.add(&netlink.Macvlan{LinkAttrs: above, Mode: netlink.MACVLAN_MODE_BRIDGE})
	return home
}

// kernelIn opens netlink in a namespace; it finds the others in a folder with a name for each.
func kernelIn(t *testing.T, home space, others ...space) *kernel {
	t.Helper()
	dir := t.TempDir()
	for i, o := range others {
		link(t, fmt.Sprintf("/proc/self/fd/%d", int(o.ns)), filepath.Join(dir, fmt.Sprint(i)))
	}
	k, err := newKernel(home.ns, namespaces{Named: []string{dir, "/nowhere"}, Proc: "/nowhere"})
	home.must(err)
	t.Cleanup(k.handle.Close)
	return k
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came to this: %s", what)
		}
	}
}

// Choices for real interfaces of the kernel.
func TestRealChoices(t *testing.T) {
	home := newHome(t)
	k := kernelIn(t, home)
	host := Host{kernel: k, mover: k, sysfs: sysfs{t.TempDir(), "/dev"}}
	f, err := host.facts()
	home.must(err)
	got := described(Choose(f, []Rule{{Resource: "a", Names: []string{"own*", "eth*"}},
		{Resource: "b", Subnets: []string{"192.0.2.0/24"}, Names: []string{"*"}}}, ownOf(f, nil)))
	want := "eth1 a; eth2 a: mac0 is on it; own0 a: it carries the default route"
	if text := strings.Join(got, "; "); text != want {
		t.Errorf("%s\nwant %s", text, want)
	}
	for _, i := range f.Interfaces {
		if i.Link.State.Name == "eth1" && (i.Link.Kind != "veth" || !i.Link.Carrier ||
			!i.Link.State.Up || i.Link.State.MTU != 1500 || len(i.Link.State.Addresses) != 1 ||
			i.Link.State.Addresses[0] != netip.MustParsePrefix("10.0.1.5/24")) {
			t.Errorf("eth1 is %+v", i.Link)
		}
	}
	home.add(&netlink.Bridge{LinkAttrs: named("br0")})
	home.must(home.LinkSetMaster(home.link("eth1"), home.link("br0")))
	if f, err = host.facts(); err != nil {
		t.Fatal(err)
	}
	got = described(Choose(f, []Rule{{Resource: "a", Names: []string{"eth1"}}}, ownOf(f, nil)))
	if len(got) != 1 || got[0] != "eth1 a: it is part of a bridge or bond" {
		t.Errorf("in a bridge it is: %q", got)
	}
}

// An interface comes home from a namespace in its original state, whatever its kind and whatever
// was done to it there.
func TestRealReturn(t *testing.T) {
	for kind, of := range map[string]func(home space) netlink.Link{
		"veth": nil,
		"macvlan": func(home space) netlink.Link {
			a := named("eth1")
			a.ParentIndex = home.link("eth2").Attrs().Index
			return &netlink.Macvlan{LinkAttrs: a, Mode: netlink.MACVLAN_MODE_BRIDGE}
		},
		"dummy": func(space) netlink.Link { return &netlink.Dummy{LinkAttrs: named("eth1")} },
		"vlan": func(home space) netlink.Link {
			a := named("eth1")
			a.ParentIndex = home.link("eth2").Attrs().Index
			return &netlink.Vlan{LinkAttrs: a, VlanId: 7, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}
		},
	} {
		t.Run(kind, func(t *testing.T) {
			home := newHome(t)
			if of != nil {
				home.must(home.LinkDel(home.link("eth1")))
				made := of(home)
				if err := home.LinkAdd(made); errors.Is(err, unix.EOPNOTSUPP) {
					t.Skipf("left out: the kernel has no %s", kind)
				} else if err != nil {
					t.Fatal(err)
				}
				address, err := netlink.ParseAddr("10.0.1.5/24")
				home.must(err, home.AddrAdd(home.link("eth1"), address), home.LinkSetUp(made))
			}
			if l := home.link("eth1"); l.Type() != kind {
				t.Fatalf("eth1 is a %s", l.Type())
			}
			testReturn(t, home)
		})
	}
}

func testReturn(t *testing.T, home space) {
	pod := newSpace(t)
	k := kernelIn(t, home, newSpace(t), pod)
	host := Host{kernel: k, mover: k, sysfs: sysfs{t.TempDir(), "/dev"}}
	keeper := testKeeper(t, host, Rule{Resource: "example.com/eni", Names: []string{"eth1"}})
	offers, err := keeper.look(sightOfPods{})
	home.must(err)
	if d := offers["example.com/eni"].devices; len(d) != 1 || d[0].GetHealth() != "Healthy" {
		t.Fatalf("offered are %v", d)
	}
	before := keeper.home["eth1"].Link
	if _, err := keeper.allocate("example.com/eni", []string{"eth1"}, ""); err != nil {
		t.Fatal(err)
	}
	spoil(home, pod)
	offers, err = keeper.look(podsHave("eth1"))
	home.must(err)
	if d := offers["example.com/eni"].devices; len(d) != 1 || d[0].GetHealth() != "Healthy" {
		t.Errorf("while a pod has it these are offered: %v", d)
	}
	offers, err = keeper.look(podsHave()) // its pod is gone
	home.must(err)
	if d := offers["example.com/eni"].devices; len(d) != 1 || d[0].GetHealth() != "Healthy" {
		t.Errorf("afterwards these are offered: %v; the records are %+v", d, keeper.records)
	}
	after := keeper.home["eth1"].Link
	before.Carrier, after.Carrier = false, false // it takes the kernel a moment
	if fmt.Sprint(before) != fmt.Sprint(after) || keeper.records["eth1"].Phase != Free {
		t.Errorf("before: %+v\nafter: %+v\nthe records are %+v", before, after, keeper.records)
	}
}

// Changes that a container makes at home, in the host's network, are undone too.
func TestRealResetAtHome(t *testing.T) {
	home := newHome(t)
	k := kernelIn(t, home)
	host := Host{kernel: k, mover: k, sysfs: sysfs{t.TempDir(), "/dev"}}
	keeper := testKeeper(t, host, Rule{Resource: "a", Names: []string{"eth1"}})
	if _, err := keeper.look(sightOfPods{}); err != nil {
		t.Fatal(err)
	}
	before := keeper.home["eth1"].Link.State
	if _, err := keeper.allocate("a", []string{"eth1"}, ""); err != nil {
		t.Fatal(err)
	}
	mac, err := net.ParseMAC("02:00:00:00:00:99")
	home.add(&netlink.Bridge{LinkAttrs: named("br0")})
	l := home.link("eth1")
	home.must(err, home.LinkSetHardwareAddr(l, mac), home.LinkSetMaster(l, home.link("br0")),
		home.LinkSetDown(l))
	home.must(keeper.prepare([]string{"eth1"}, ""))
	if _, err := keeper.look(sightOfPods{}); err != nil {
		t.Fatal(err)
	}
	now := keeper.home["eth1"].Link
	if fmt.Sprint(now.State) != fmt.Sprint(before) || now.Master != 0 {
		t.Errorf("before: %+v\nafter: %+v", before, now)
	}
}

// An interface of another namespace with the index and name of ours is left alone.
func TestRealStranger(t *testing.T) {
	home, pod := newHome(t), newSpace(t)
	k := kernelIn(t, home, pod)
	host := Host{kernel: k, mover: k, sysfs: sysfs{t.TempDir(), "/dev"}}
	keeper := testKeeper(t, host, Rule{Resource: "a", Names: []string{"eth1"}})
	if _, err := keeper.look(sightOfPods{}); err != nil {
		t.Fatal(err)
	}
	l := home.link("eth1")
	if _, err := keeper.allocate("a", []string{"eth1"}, ""); err != nil {
		t.Fatal(err)
	}
	home.must(home.LinkDel(l))
	stranger := named("eth1")
	stranger.Index = l.Attrs().Index
	pod.add(&netlink.Veth{LinkAttrs: stranger, PeerName: "peth1"})
	if err := keeper.prepare([]string{"eth1"}, ""); !errors.Is(err, errNowhere) {
		t.Errorf("preparing what is gone: %v", err)
	}
	if now := pod.link("eth1"); now.Attrs().Index != l.Attrs().Index {
		t.Errorf("the stranger has index %d, which shows nothing", now.Attrs().Index)
	}
}

// spoil moves eth1 into a pod, which changes all it can.
func spoil(home, pod space) {
	home.t.Helper()
	home.must(home.LinkSetNsFd(home.link("eth1"), int(pod.ns)))
	l := pod.link("eth1")
	address, err := netlink.ParseAddr("172.16.0.1/24")
	pod.must(err, pod.LinkSetName(l, "net1"), pod.LinkSetMTU(l, 1400), pod.LinkSetAlias(l, "mine"), pod.LinkSetTxQLen(l, 7),
		pod.SetPromiscOn(l), pod.LinkSetAllmulticastOn(l), pod.AddrAdd(l, address),
		pod.LinkSetUp(l))
	if _, err := home.LinkByName("eth1"); err == nil {
		home.t.Fatal("the interface is still at home")
	}
}

// A running container keeps its interface even if the agent, started without the API server, does
// not know its pod.
func TestRealUse(t *testing.T) {
	home, pod := newHome(t), newSpace(t)
	k := kernelIn(t, home, pod)
	k.spaces.Proc = "/proc"
	host := Host{kernel: k, mover: k, sysfs: sysfs{t.TempDir(), "/dev"}}
	keeper, said := testKeeper(t, host, Rule{Resource: "a", Names: []string{"eth1"}}), &pages{}
	keeper.news.log = log.New(said, "", 0)
	look := func(pods sightOfPods) Phase {
		t.Helper()
		_, err := keeper.look(pods)
		home.must(err)
		return keeper.records["eth1"].Phase
	}
	look(sightOfPods{})
	_, err := keeper.allocate("a", []string{"eth1"}, "")
	home.must(err)
	spoil(home, pod)
	look(podsHave("eth1"))
	container := exec.Command("nsenter", fmt.Sprintf("--net=/proc/%d/fd/%d", os.Getpid(), int(pod.ns)),
		"sh", "-c", "echo; exec sleep 600")
	container.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := container.StdoutPipe()
	home.must(err, container.Start())
	_, err = out.Read(make([]byte, 1)) // it is in the namespace
	home.must(err)
	if got := look(podsHave()); got != Handed || !said.has(fmt.Sprintf("eth1 (eth1) stays where it "+
		"is, though the agent does not tell of its pod: process %d is in", container.Process.Pid)) {
		t.Errorf("while a process uses it, it is %s; the log says %s", got, said.text.String())
	}
	home.must(container.Process.Kill())
	_ = container.Wait() // the error is that of the kill
	if got := look(podsHave()); got != Free {
		t.Errorf("afterwards it is %s: %+v", got, keeper.records)
	}
}

// An interface whose name is taken comes home under another name; one that went with its namespace
// is not listed any more.
func TestRealNameTaken(t *testing.T) {
	home, pod := newHome(t), newSpace(t)
	k := kernelIn(t, home, pod)
	host := Host{kernel: k, mover: k, sysfs: sysfs{t.TempDir(), "/dev"}}
	keeper := testKeeper(t, host, Rule{Resource: "a", MACs: []string{"*"}, Names: []string{"eth1"}})
	if _, err := keeper.look(sightOfPods{}); err != nil {
		t.Fatal(err)
	}
	index := home.link("eth1").Attrs().Index
	if _, err := keeper.allocate("a", []string{"eth1"}, ""); err != nil {
		t.Fatal(err)
	}
	spoil(home, pod)
	home.add(&netlink.Bridge{LinkAttrs: named("eth1")})
	if err := keeper.prepare([]string{"eth1"}, ""); err == nil ||
		!strings.Contains(err.Error(), "another interface is eth1 now") {
		t.Errorf("a runtime is given the bridge that has its name: %v", err)
	}
	l, err := home.LinkByIndex(index)
	if err != nil || l.Attrs().Name == "eth1" || l.Attrs().MTU != 1500 {
		t.Fatalf("it is at home as %+v, %v", l, err)
	}
	home.must(home.LinkDel(l))
	if err := keeper.prepare([]string{"eth1"}, ""); !errors.Is(err, errNowhere) {
		t.Errorf("what is nowhere is ready: %v", err)
	}
}
