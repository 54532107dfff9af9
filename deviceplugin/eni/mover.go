package eni

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// namespaces finds network namespaces: named ones, and those of processes.
type namespaces struct {
	// Named are folders with a file for each, Proc is procfs.
	Named []string
	Proc  string
}

// maxProcesses bounds the processes looked at.
const maxProcesses = 65536

// each calls do once for each namespace except home, until it returns true or an error.
func (n namespaces) each(home netns.NsHandle, do func(netns.NsHandle) (bool, error)) error {
	seen := map[string]bool{home.UniqueId(): true}
	for _, path := range n.paths() {
		ns, err := netns.GetFromPath(path)
		if err != nil {
			continue // it has just ended, or is no namespace
		}
		var done bool
		if id := ns.UniqueId(); !seen[id] {
			seen[id] = true
			done, err = do(ns)
		}
		if err := errors.Join(err, ns.Close()); err != nil || done {
			return err
		}
	}
	return nil
}

func (n namespaces) paths() (paths []string) {
	for _, dir := range n.Named {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // no runtime has made it
		}
		for _, e := range entries {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	for _, pid := range n.processes() {
		paths = append(paths, n.of(pid))
	}
	return paths
}

func (n namespaces) processes() (pids []int) {
	f, err := os.Open(n.Proc)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(maxProcesses) // entries read before an error count
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (n namespaces) of(pid int) string { return filepath.Join(n.Proc, strconv.Itoa(pid), "ns/net") }

// user returns a process in a namespace, 0 if there is none.
func (n namespaces) user(of netns.NsHandle) int {
	for _, pid := range n.processes() {
		ns, err := netns.GetFromPath(n.of(pid))
		if err != nil {
			continue // it has just ended
		}
		is := ns.Equal(of)
		_ = ns.Close() // only read from
		if is {
			return pid
		}
	}
	return 0
}

// errNowhere says that an interface is in no visible namespace.
var errNowhere = errors.New("the interface is in no network namespace that can be seen here: " +
	"run the plugin with the host's network and processes (hostNetwork, hostPID)")

// Fetch implements Mover.
func (k *kernel) Fetch(i Interface) error {
	var found bool
	err := k.spaces.each(k.home, func(ns netns.NsHandle) (bool, error) {
		var err error
		found, err = k.fetchFrom(ns, i)
		return found, err
	})
	switch {
	case err != nil:
		return fmt.Errorf("bring %s home: %w", i.Link.State.Name, err)
	case !found:
		return errNowhere
	}
	return nil
}

// User implements Mover.
func (k *kernel) User(i Interface) (pid int, err error) {
	err = k.spaces.each(k.home, func(ns netns.NsHandle) (bool, error) {
		at, _, err := findIn(ns, i)
		if at == nil || err != nil {
			return false, err
		}
		at.Close()
		pid = k.spaces.user(ns)
		return true, nil
	})
	if err != nil {
		return 0, fmt.Errorf("look for processes where %s is: %w", i.Link.State.Name, err)
	}
	return pid, nil
}

// findIn returns netlink in a namespace and the interface's link there; nil if the interface is not
// there.
func findIn(ns netns.NsHandle, i Interface) (*netlink.Handle, *Link, error) {
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, nil, nil //nolint:nilerr // the namespace has just ended
	}
	links, err := linksOf(h)
	if at := slices.IndexFunc(links, i.same); err == nil && at >= 0 {
		return h, &links[at], nil
	}
	h.Close()
	return nil, nil, err
}

// fetchFrom moves the interface home if it is in ns. It first gets a random name, which no interface
// has in ns or at home and no container can foresee; steps restores its own names.
func (k *kernel) fetchFrom(ns netns.NsHandle, i Interface) (bool, error) {
	h, away, err := findIn(ns, i)
	if h == nil || err != nil {
		return false, err
	}
	defer h.Close()
	link := linkAt(away.Index)
	for _, name := range away.State.AltNames { // a name in use at home would stop the move
		err = errors.Join(err, h.LinkDelAltName(link, name))
	}
	return true, errors.Join(err, h.LinkSetDown(link),
		h.LinkSetName(link, fmt.Sprintf("eni%08x", rand.Uint32())),
		h.LinkSetNsFd(link, int(k.home)))
}

// linkAt returns a link in the form of netlink's library.
func linkAt(index int) netlink.Link {
	return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}
}

// switches are the steps without a value.
var switches = map[Op]func(*netlink.Handle, netlink.Link) error{
	SetDown:        (*netlink.Handle).LinkSetDown,
	SetUp:          (*netlink.Handle).LinkSetUp,
	LeaveMaster:    (*netlink.Handle).LinkSetNoMaster,
	LeavePromisc:   (*netlink.Handle).SetPromiscOff,
	LeaveMulticast: (*netlink.Handle).LinkSetAllmulticastOff,
	MulticastOn:    (*netlink.Handle).LinkSetMulticastOn,
	MulticastOff:   (*netlink.Handle).LinkSetMulticastOff,
	ARPOn:          (*netlink.Handle).LinkSetARPOn,
	ARPOff:         (*netlink.Handle).LinkSetARPOff,
}

// numbers are the steps with a number.
var numbers = map[Op]func(*netlink.Handle, netlink.Link, int) error{
	SetMTU:     (*netlink.Handle).LinkSetMTU,
	SetQueue:   (*netlink.Handle).LinkSetTxQLen,
	SetGroup:   (*netlink.Handle).LinkSetGroup,
	SetGSOSize: (*netlink.Handle).LinkSetGSOMaxSize,
	SetGSOSegs: (*netlink.Handle).LinkSetGSOMaxSegs,
	SetGROSize: (*netlink.Handle).LinkSetGROMaxSize,
}

// Apply implements Mover.
func (k *kernel) Apply(index int, s Step) error {
	link := linkAt(index)
	var err error
	if do := switches[s.Op]; do != nil {
		err = do(k.handle, link)
	} else if do := numbers[s.Op]; do != nil {
		err = do(k.handle, link, s.Number)
	} else {
		err = k.apply(link, s)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	return nil
}

// apply makes a change whose value is no number.
func (k *kernel) apply(link netlink.Link, s Step) (err error) {
	switch s.Op {
	case SetName:
		err = k.handle.LinkSetName(link, s.Text)
	case RemoveAltName:
		err = k.handle.LinkDelAltName(link, s.Text)
	case AddAltName:
		err = k.handle.LinkAddAltName(link, s.Text)
	case SetAlias:
		err = k.handle.LinkSetAlias(link, s.Text)
	case SetMAC:
		var mac net.HardwareAddr
		if mac, err = net.ParseMAC(s.Text); err == nil {
			err = k.handle.LinkSetHardwareAddr(link, mac)
		}
	case DetachXDP:
		err = k.inHome(func() error { return netlink.LinkSetXdpFd(link, -1) })
	case RemoveAddress:
		err = unless(unix.EADDRNOTAVAIL, k.handle.AddrDel(link, addressOf(s.Address)))
	case AddAddress:
		err = unless(unix.EEXIST, k.handle.AddrAdd(link, addressOf(s.Address)))
	default:
		err = fmt.Errorf("there is no such step: %w", fs.ErrInvalid)
	}
	return err
}

// unless drops an error that means that nothing is left to do.
func unless(done, err error) error {
	if errors.Is(err, done) {
		return nil
	}
	return err
}

// inHome runs do in the home namespace, for functions of netlink's library that only use the
// thread's.
func (k *kernel) inHome(do func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := netns.Get()
	if err != nil {
		return err
	}
	defer before.Close()
	if err := netns.Set(k.home); err != nil {
		return err
	}
	return errors.Join(do(), netns.Set(before))
}

func addressOf(p netip.Prefix) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(),
		Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
}
