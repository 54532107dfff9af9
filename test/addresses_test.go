package test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/devices"
	"github.com/numalet/numalet/test/harness"
)

// TestAddressComesLate runs an agent on a machine that has no network yet, then gets an address,
// then another one. The pods' statuses follow.
func TestAddressComesLate(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a network namespace is root's to make")
	}
	t.Parallel()
	n := harness.New(t)
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	n.Program = []string{os.Args[0], "-test.run=^TestApart$", "--", binary}
	n.Settings["syncFrequency"] = "1s" // the interval at which a running pod's status is updated
	n.Pod("app", `{apiVersion: v1, kind: Pod, metadata: {name: app}, spec: {containers: [
 {name: main, image: "registry.test/work:1"}]}}`)
	n.StartOnly()
	awaitHostIP(t, n, "127.0.0.1")
	space, err := netns.GetFromPid(n.PID())
	if err != nil {
		t.Fatal(err)
	}
	defer space.Close()
	links, err := netlink.NewHandleAt(space)
	if err != nil {
		t.Fatal(err)
	}
	defer links.Close()
	late := netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "peer0"}
	late.Flags = net.FlagUp
	if err := links.LinkAdd(&late); err != nil {
		t.Fatal(err)
	}
	change := func(what func(netlink.Link, *netlink.Addr) error, text string) {
		t.Helper()
		address, err := netlink.ParseAddr(text)
		if err == nil {
			err = what(&late, address)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	change(links.AddrAdd, "10.9.8.7/24")
	awaitHostIP(t, n, "10.9.8.7")
	change(links.AddrAdd, "10.9.7.6/24")
	change(links.AddrDel, "10.9.8.7/24")
	awaitHostIP(t, n, "10.9.7.6")
}

// TestApart becomes the command behind -- in its own network namespace, which has only a loopback
// interface.
func TestApart(t *testing.T) {
	if len(flag.Args()) == 0 {
		t.Skip("it is what another test starts")
	}
	runtime.LockOSThread()
	if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Fatal(syscall.Exec(flag.Arg(0), flag.Args(), os.Environ()))
}

// awaitHostIP waits until the statuses of the node's pods have the address. It asks the agent over
// its socket, because the agent's ports are in another network namespace.
func awaitHostIP(t *testing.T, n *harness.Node, want string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", filepath.Join(n.Root, devices.Socket))
		},
	}}
	n.Eventually("pods are told "+want, func() error {
		answer, err := client.Get("http://numalet/pods")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		var list v1.PodList
		if err := json.NewDecoder(answer.Body).Decode(&list); err != nil {
			return err
		}
		for _, p := range list.Items {
			if p.Status.Phase != v1.PodRunning || p.Status.HostIP != want {
				return fmt.Errorf("pod %s is %s on %q", p.Name, p.Status.Phase, p.Status.HostIP)
			}
		}
		if len(list.Items) == 0 {
			return fmt.Errorf("there is no pod")
		}
		return nil
	})
}
