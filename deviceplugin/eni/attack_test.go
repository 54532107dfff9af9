package eni

import (
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/numalet/numalet/internal/complaint"
)

// attack simulates a host whose pods do to interfaces whatever a container with the rights can,
// while the plugin may be killed at any change that it makes.
type attack struct {
	t      *testing.T
	random *rand.Rand
	home   space
	kernel *kernel
	named  string // the folder of namespaces
	keeper *keeper
	store  store
	pages  *pages
	nics   []*nic
	pods   []*attackPod
	made   int
	skew   time.Duration // how much later it is for the plugin
	trace  []string
	// lives is the number of changes until the plugin is killed.
	lives int
}

// nic identifies an interface by the other end of its pair, which nobody touches.
type nic struct {
	id   string
	peer int
	was  State
	pod  *attackPod // its holder; nil: nobody
	away bool       // its network has moved it
	lost bool       // its pod removed it or made it unrecognizable
}

// attackPod is a pod with a network namespace.
type attackPod struct {
	uid   string
	space space
}

// killed is the panic that ends a plugin.
type killed struct{}

// Fetch implements Mover.
func (a *attack) Fetch(i Interface) error {
	a.live()
	return a.kernel.Fetch(i)
}

// User implements Mover.
func (a *attack) User(i Interface) (int, error) { return a.kernel.User(i) }

// Apply implements Mover.
func (a *attack) Apply(index int, s Step) error {
	a.live()
	return a.kernel.Apply(index, s)
}

func (a *attack) live() {
	if a.lives--; a.lives == 0 {
		panic(killed{})
	}
}

// newAttack makes four interfaces, and a namespace with the other ends of their pairs.
func newAttack(t *testing.T, seed uint64) *attack {
	a := &attack{t: t, random: rand.New(rand.NewPCG(seed, 0)), home: newSpace(t), named: t.TempDir(),
		store: store{filepath.Join(t.TempDir(), "state")}, pages: &pages{}}
	far := newSpace(t)
	a.home.add(&netlink.Veth{LinkAttrs: named("own0"), PeerName: "pown0"}, "192.0.2.2/24")
	a.home.must(a.home.LinkSetUp(a.home.link("pown0")), a.home.RouteAdd(&netlink.Route{
		LinkIndex: a.home.link("own0").Attrs().Index, Gw: net.ParseIP("192.0.2.1")}))
	for n := 1; n <= 4; n++ {
		name := fmt.Sprintf("eth%d", n)
		a.home.add(&netlink.Veth{LinkAttrs: named(name), PeerName: "p" + name,
			PeerNamespace: netlink.NsFd(far.ns)}, fmt.Sprintf("10.0.%d.5/24", n), fmt.Sprintf("fd00:%d::5/64", n))
		peer := far.link("p" + name)
		far.must(far.LinkSetUp(peer))
		a.nics = append(a.nics, &nic{id: name, peer: peer.Attrs().Index})
	}
	var err error
	a.kernel, err = newKernel(a.home.ns, namespaces{Named: []string{a.named}, Proc: "/nowhere"})
	a.home.must(err)
	t.Cleanup(a.kernel.handle.Close)
	a.begin()
	for _, n := range a.nics {
		n.was = a.keeper.home[n.id].Link.State
	}
	return a
}

// begin starts a plugin with the records on disk.
func (a *attack) begin() {
	records, err := a.store.load()
	a.home.must(err)
	a.lives = 0
	a.keeper = &keeper{host: Host{kernel: a.kernel, mover: a, sysfs: sysfs{"/nowhere", "/dev"}},
		rules: []Rule{{Resource: "example.com/eni", Names: []string{"eth[1-4]"}}}, move: ByNetwork,
		store: a.store, records: records, own: Own{}, news: news{log.New(a.pages, "", 0), map[string]*complaint.Complaint[string]{}}}
	a.look()
}

// plugin runs what in the plugin; if that is killed meanwhile, a new one starts.
func (a *attack) plugin(what func()) (lived bool) {
	defer func() {
		if reason := recover(); reason != nil {
			if _, is := reason.(killed); !is {
				panic(reason)
			}
			a.trace = append(a.trace, "killed")
			a.begin()
		}
	}()
	a.lives = 0
	if a.random.IntN(3) == 0 {
		a.lives = 1 + a.random.IntN(6)
	}
	what()
	a.lives = 0
	return true
}

// look makes the plugin look, with the agent's answer about pods.
func (a *attack) look() map[string]offer {
	var held []string
	for _, n := range a.nics {
		if n.pod != nil {
			held = append(held, n.id)
		}
	}
	a.skew += 20 * time.Second
	pods := podsHave(held...)
	pods.asked, pods.missedFor = pods.asked.Add(a.skew), missedFor
	offers, err := a.keeper.look(pods)
	if err != nil {
		a.fail("look: %v", err)
	}
	return offers
}

func (a *attack) fail(format string, args ...any) {
	a.t.Helper()
	a.t.Fatalf("%s\nafter %s\nlog: %s", fmt.Sprintf(format, args...),
		strings.Join(a.trace, "; "), a.pages.text.String())
}

// find returns an interface in a namespace, nil if it is not there.
func (a *attack) find(s space, n *nic) netlink.Link {
	links, err := again(s.LinkList)
	a.home.must(err)
	for _, l := range links {
		if l.Type() == "veth" && l.Attrs().ParentIndex == n.peer && l.Attrs().NetNsID >= 0 {
			return l
		}
	}
	return nil
}

// attackers are the possible events.
var attackers = map[string]func(a *attack) string{
	"a pod begins": func(a *attack) string {
		if len(a.pods) == 4 {
			return ""
		}
		a.made++
		p := &attackPod{uid: fmt.Sprint("pod", a.made), space: makeSpace(a.t)}
		link(a.t, fmt.Sprintf("/proc/self/fd/%d", int(p.space.ns)), filepath.Join(a.named, p.uid))
		for range a.random.IntN(4) { // so that indexes differ between pods
			a.made++
			p.space.add(&netlink.Bridge{LinkAttrs: named(fmt.Sprint("cni", a.made))})
		}
		a.pods = append(a.pods, p)
		return p.uid
	},
	"allocate": func(a *attack) string {
		p, n := a.pod(), a.nics[a.random.IntN(4)]
		if p == nil || n.pod != nil || n.lost || a.home.notHome(n) {
			return ""
		}
		a.plugin(func() {
			if _, err := a.keeper.allocate("example.com/eni", []string{n.id}, p.uid); err != nil {
				a.fail("allocate %s: %v", n.id, err)
			}
			n.pod = p
		})
		return n.id + " to " + p.uid
	},
	"move in": func(a *attack) string {
		n := a.nics[a.random.IntN(4)]
		if n.pod == nil || n.away || n.lost {
			return ""
		}
		l := a.find(a.home, n)
		if l == nil {
			a.fail("%s is allocated and not at home", n.id)
		}
		if err := a.home.LinkSetNsFd(l, int(n.pod.space.ns)); err != nil {
			return err.Error() // the pod has another one of that name
		}
		n.away = true
		return n.id + " to " + n.pod.uid
	},
	"spoil": func(a *attack) string {
		n, l := a.away()
		if n == nil {
			return ""
		}
		s := n.pod.space
		what := a.random.IntN(len(spoilers))
		if err := spoilers[what](s, l, a.random.IntN(1000)); err != nil {
			a.trace = append(a.trace, err.Error())
		}
		return fmt.Sprintf("%s, %d", n.id, what)
	},
	"swap names": func(a *attack) string {
		n, l := a.away()
		if n == nil {
			return ""
		}
		for _, other := range a.nics {
			if other == n || other.pod != n.pod || !other.away || other.lost {
				continue
			}
			s, o := n.pod.space, a.find(n.pod.space, other)
			err := errors.Join(s.LinkSetDown(l), s.LinkSetDown(o), s.LinkSetName(l, "swap"),
				s.LinkSetName(o, l.Attrs().Name), s.LinkSetName(l, o.Attrs().Name))
			return fmt.Sprintf("%s and %s: %v", n.id, other.id, err) // an altname may be in the way
		}
		return ""
	},
	"remove": func(a *attack) string {
		n, l := a.away()
		if n == nil || a.random.IntN(4) > 0 {
			return ""
		}
		n.pod.space.must(n.pod.space.LinkDel(l))
		n.lost = true
		return n.id
	},
	"a pod ends": func(a *attack) string {
		p := a.pod()
		if p == nil {
			return ""
		}
		a.end(p)
		return p.uid
	},
	"released late": func(a *attack) string {
		n := a.nics[a.random.IntN(4)]
		if n.pod == nil {
			return ""
		}
		a.plugin(func() { _ = a.keeper.released([]string{n.id}, "pod0") })
		return n.id
	},
	"look": func(a *attack) string {
		if a.plugin(func() { a.look() }) {
			return "done"
		}
		return "killed"
	},
	"a stranger comes": func(a *attack) string {
		n := a.nics[a.random.IntN(4)]
		if _, err := a.home.LinkByName(n.id); err == nil {
			return ""
		}
		a.home.add(&netlink.Bridge{LinkAttrs: named(n.id)})
		return n.id
	},
	"a stranger goes": func(a *attack) string {
		for _, n := range a.nics {
			if l, err := a.home.LinkByName(n.id); err == nil && l.Type() == "bridge" {
				a.home.must(a.home.LinkDel(l))
				return n.id
			}
		}
		return ""
	},
}

// spoilers are things that a container does to an interface.
var spoilers = []func(s space, l netlink.Link, n int) error{
	func(s space, l netlink.Link, n int) error {
		return errors.Join(s.LinkSetDown(l), s.LinkSetName(l, fmt.Sprint("net", n)))
	},
	func(s space, l netlink.Link, n int) error { return s.LinkSetMTU(l, 1280+n%100) },
	func(s space, l netlink.Link, _ int) error { return s.LinkSetAlias(l, "mine") },
	func(s space, l netlink.Link, n int) error { return s.LinkSetTxQLen(l, n+1) },
	func(s space, l netlink.Link, _ int) error { return s.SetPromiscOn(l) },
	func(s space, l netlink.Link, _ int) error { return s.LinkSetAllmulticastOn(l) },
	func(s space, l netlink.Link, _ int) error { return s.LinkSetUp(l) },
	func(s space, l netlink.Link, _ int) error { return s.LinkSetARPOff(l) },
	func(s space, l netlink.Link, _ int) error { return s.LinkSetMulticastOff(l) },
	func(s space, l netlink.Link, n int) error { return s.LinkSetGroup(l, n) },
	func(s space, l netlink.Link, n int) error { return s.LinkSetGSOMaxSize(l, 20000+n) },
	func(s space, l netlink.Link, n int) error { return s.LinkAddAltName(l, fmt.Sprint("alt", n)) },
	func(s space, l netlink.Link, n int) error { return s.LinkAddAltName(l, "own0") },
	func(s space, l netlink.Link, n int) error {
		return s.LinkAddAltName(l, fmt.Sprint("eth", 1+n%4))
	},
	func(s space, _ netlink.Link, n int) error { // a name that a plugin might be expected to use
		return s.LinkAdd(&netlink.Bridge{LinkAttrs: named(fmt.Sprintf("eni%08x", n%8))})
	},
	func(s space, l netlink.Link, n int) error {
		a, err := netlink.ParseAddr(fmt.Sprintf("172.16.%d.%d/24", n/256, n%256))
		return errors.Join(err, s.AddrAdd(l, a))
	},
	func(s space, l netlink.Link, n int) error {
		above := named(fmt.Sprint("mac", n))
		above.ParentIndex = l.Attrs().Index
		return s.LinkAdd(&netlink.Macvlan{LinkAttrs: above, Mode: netlink.MACVLAN_MODE_BRIDGE})
	},
	func(s space, l netlink.Link, n int) error {
		bridge := &netlink.Bridge{LinkAttrs: named(fmt.Sprint("br", n))}
		return errors.Join(s.LinkAdd(bridge), s.LinkSetMaster(l, bridge))
	},
}

// notHome reports whether the interface's name is absent at home, or another interface has it.
func (s space) notHome(n *nic) bool {
	l, err := s.LinkByName(n.id)
	return err != nil || l.Type() != "veth" || l.Attrs().ParentIndex != n.peer
}

// pod returns a random pod, nil if there is none.
func (a *attack) pod() *attackPod {
	if len(a.pods) == 0 {
		return nil
	}
	return a.pods[a.random.IntN(len(a.pods))]
}

// away returns a random interface that is in a pod, nil if there is none.
func (a *attack) away() (*nic, netlink.Link) {
	n := a.nics[a.random.IntN(4)]
	if !n.away || n.lost {
		return nil, nil
	}
	return n, a.find(n.pod.space, n)
}

// end ends a pod; the plugin may hear of the release before, after, twice or never.
func (a *attack) end(p *attackPod) {
	var ids []string
	for _, n := range a.nics {
		if n.pod == p {
			n.pod, n.away = nil, false
			ids = append(ids, n.id)
		}
	}
	a.pods = slices.DeleteFunc(a.pods, func(o *attackPod) bool { return o == p })
	var back bool
	for range a.random.IntN(3) {
		a.plugin(func() { back = a.keeper.released(ids, p.uid) == nil })
	}
	if !back && a.random.IntN(2) == 0 { // somebody keeps the namespace for a while
		for range 9 {
			a.plugin(func() { a.look() })
		}
		back = true
	}
	for _, n := range a.nics {
		if back && slices.Contains(ids, n.id) && !n.lost && a.find(a.home, n) == nil {
			a.fail("%s is not at home though its pod has ended", n.id)
		}
	}
	a.home.must(os.Remove(filepath.Join(a.named, p.uid)))
	for _, n := range a.nics {
		if slices.Contains(ids, n.id) && a.find(p.space, n) != nil {
			n.lost = true // it disappears with the namespace, after a while
		}
	}
	p.space.end()
}

// check checks the invariants.
func (a *attack) check() {
	a.t.Helper()
	for _, n := range a.nics {
		r, known := a.keeper.records[n.id]
		switch {
		case n.away && !n.lost && a.find(n.pod.space, n) == nil:
			a.fail("%s was taken from %s", n.id, n.pod.uid)
		case n.pod == nil && !n.lost && known && r.Phase == Free && !a.home.notHome(n):
			a.same(n)
		}
	}
}

// same compares an interface at home with its state from before.
func (a *attack) same(n *nic) {
	a.t.Helper()
	l := a.find(a.home, n)
	if l == nil {
		a.fail("%s is not at home", n.id)
	}
	links, err := a.kernel.Links()
	a.home.must(err)
	at := slices.IndexFunc(links, func(i Link) bool { return i.Index == l.Attrs().Index })
	was, is := n.was, links[at].State
	if is.Name != was.Name && !a.home.notHome(n) {
		was.Name = is.Name
	}
	if fmt.Sprint(was) != fmt.Sprint(is) {
		a.fail("%s was %+v\nand is %+v", n.id, was, is)
	}
}

// Whatever containers do to their interfaces, whenever the plugin is killed and whatever it hears
// of releases: it takes no interface from a pod, and what it offers is in its original state.
func TestAttack(t *testing.T) {
	names := make([]string, 0, len(attackers))
	for name := range attackers {
		names = append(names, name)
	}
	slices.Sort(names)
	names = append(names, "allocate", "move in", "move in", "move in", "spoil", "spoil", "spoil", "spoil")
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			a := newAttack(t, seed)
			for range 120 {
				name := names[a.random.IntN(len(names))]
				if did := attackers[name](a); did != "" {
					a.trace = append(a.trace, name+": "+did)
					a.check()
				}
			}
			for len(a.pods) > 0 {
				a.end(a.pods[0])
			}
			for range 10 {
				a.look()
			}
			a.check()
			for id, r := range a.keeper.records {
				if r.Phase != Free {
					a.fail("nobody has %s, which is %s", id, r.Phase)
				}
			}
		})
	}
}
