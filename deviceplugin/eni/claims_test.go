package eni_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/numalet/numalet/deviceplugin/check"
	nodedra "github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dracheck"
	"github.com/numalet/numalet/deviceplugin/dradriver"
	"github.com/numalet/numalet/deviceplugin/eni"
	"github.com/numalet/numalet/deviceplugin/eni/dra"
	"github.com/numalet/numalet/deviceplugin/socket"
	"github.com/numalet/numalet/test/scratch"
)

const claimDriver = "eni.example.com"

// lines is a log that a test reads.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// byClaim is a simulated host whose interfaces are handed out by claim, seen through the driver's
// sockets and its API server.
type byClaim struct {
	t      *testing.T
	root   string
	places eni.Places
	client *fake.Clientset
	said   lines
	dra    drav1.DRAPluginClient
}

// serveClaims runs a driver, and returns it with its host.
func serveClaims(t *testing.T) (*byClaim, eni.SimulatedHost) {
	t.Helper()
	b := &byClaim{t: t, root: scratch.Dir(t), client: fake.NewClientset(
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "node-uid"}})}
	host, places := eni.OpenHost(t, "rdma", b.root)
	b.places = places
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- dra.Run(ctx, dra.Config{Config: eni.Config{
			Interfaces: []eni.Rule{{Resource: "example.com/vf", VirtualOf: []string{"ens8f0"}},
				{Resource: "example.com/eni", Drivers: []string{"virtio_net"}},
				{Resource: "example.com/eni", Names: []string{"veth*"}}},
			Places: places, Log: log.New(&b.said, "", 0), Kernel: host, Mover: host},
			Driver: dradriver.Config{Driver: claimDriver, Node: "node", Root: b.root,
				Client: b.client, Program: "numalet-eni"}})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the driver said\n%s", b.said.String())
		}
	})
	conn, err := socket.Client(filepath.Join(b.root, "plugins", claimDriver, "dra.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	b.dra = drav1.NewDRAPluginClient(conn)
	b.eventually("the slices", func() error {
		if got := len(b.devices()); got != 4 {
			return fmt.Errorf("%d devices", got)
		}
		return nil
	})
	return b, host
}

func (b *byClaim) eventually(what string, check func() error) {
	b.t.Helper()
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if err = check(); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.t.Fatalf("%s: %v", what, err)
}

func (b *byClaim) slices() []resourcev1.ResourceSlice {
	b.t.Helper()
	list, err := b.client.ResourceV1().ResourceSlices().List(b.t.Context(), metav1.ListOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return list.Items
}

// devices returns the published devices by name.
func (b *byClaim) devices() map[string]resourcev1.Device {
	b.t.Helper()
	out := map[string]resourcev1.Device{}
	for _, slice := range b.slices() {
		for _, d := range slice.Spec.Devices {
			out[d.Name] = d
		}
	}
	return out
}

// tainted waits until a device is tainted, or is not.
func (b *byClaim) tainted(device string, want bool) {
	b.t.Helper()
	b.eventually(fmt.Sprintf("%s is tainted: %t", device, want), func() error {
		if got := b.devices()[device].Taints; len(got) > 0 != want {
			return fmt.Errorf("it has %v", got)
		}
		return nil
	})
}

// claim makes a claim with these devices.
func (b *byClaim) claim(name string, devices ...string) *drav1.Claim {
	b.t.Helper()
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "default", UID: types.UID("uid-" + name)}}
	c.Status.Allocation = &resourcev1.AllocationResult{}
	for _, device := range devices {
		device, admin := strings.CutPrefix(device, "admin of ")
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
			resourcev1.DeviceRequestAllocationResult{Request: "nic", Driver: claimDriver,
				Pool: "node", Device: device, AdminAccess: &admin})
	}
	if _, err := b.client.ResourceV1().ResourceClaims("default").Create(b.t.Context(), c,
		metav1.CreateOptions{}); err != nil {
		b.t.Fatal(err)
	}
	return &drav1.Claim{Namespace: "default", Name: name, Uid: string(c.UID)}
}

// prepare returns the error of the claim; "": there is none.
func (b *byClaim) prepare(c *drav1.Claim) string {
	b.t.Helper()
	resp, err := b.dra.NodePrepareResources(b.t.Context(),
		&drav1.NodePrepareResourcesRequest{Claims: []*drav1.Claim{c}})
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.GetClaims()[c.GetUid()].GetError()
}

func (b *byClaim) unprepare(c *drav1.Claim) string {
	b.t.Helper()
	resp, err := b.dra.NodeUnprepareResources(b.t.Context(),
		&drav1.NodeUnprepareResourcesRequest{Claims: []*drav1.Claim{c}})
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.GetClaims()[c.GetUid()].GetError()
}

// gets returns what containers get with each device of a claim, a line each.
func (b *byClaim) gets(c *drav1.Claim) string {
	b.t.Helper()
	raw, err := os.ReadFile(filepath.Join(b.places.CDI,
		"numalet."+claimDriver+"-claim_"+c.GetUid()+".json"))
	var spec specs.Spec
	if err == nil {
		err = json.Unmarshal(raw, &spec)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	var out []string
	for _, d := range spec.Devices {
		var all []string
		for _, n := range d.ContainerEdits.NetDevices {
			all = append(all, n.HostInterfaceName+" as "+n.Name)
		}
		for _, n := range d.ContainerEdits.DeviceNodes {
			all = append(all, n.Path)
		}
		for _, e := range d.ContainerEdits.Env {
			if !strings.Contains(e, "_INFO=") {
				all = append(all, e)
			}
		}
		out = append(out, strings.Join(all, " "))
	}
	return strings.Join(out, "\n")
}

// The slices tell what sysfs and netlink tell; what the node needs is not in them.
func TestInterfaceSlices(t *testing.T) {
	b, _ := serveClaims(t)
	var out strings.Builder
	all := b.devices()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintln(&out, name)
		for _, key := range slices.Sorted(maps.Keys(all[name].Attributes)) {
			switch a := all[name].Attributes[key]; {
			case a.IntValue != nil:
				fmt.Fprintf(&out, "  %s: %d\n", key, *a.IntValue)
			case a.BoolValue != nil:
				fmt.Fprintf(&out, "  %s: %t\n", key, *a.BoolValue)
			default:
				fmt.Fprintf(&out, "  %s: %s\n", key, *a.StringValue)
			}
		}
	}
	want, err := os.ReadFile("testdata/slices.txt")
	if err != nil || out.String() != string(want) {
		t.Errorf("%v: the slices are\n%s, want\n%s", err, out.String(), want)
	}
}

// The driver passes the checks of drivers, with claims for one interface and for two.
func TestCheckClaims(t *testing.T) {
	b, _ := serveClaims(t)
	var claims []nodedra.Claim
	for name, devices := range map[string][]string{"one": {"pci-0000-00-06-0"},
		"two": {"pci-0000-81-00-1", "net-veth1234"}} {
		c := b.claim(name, devices...)
		claims = append(claims, nodedra.Claim{Namespace: c.GetNamespace(), Name: c.GetName(),
			UID: types.UID(c.GetUid())})
	}
	report, err := dracheck.Run(t.Context(), dracheck.Config{
		Socket: filepath.Join(b.root, "plugins_registry", claimDriver+"-reg.sock"),
		Claims: claims, Slices: b.slices(), CDI: []string{b.places.CDI}, Patience: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Results {
		if r.Verdict == check.Failed || r.Verdict == check.Warning {
			t.Errorf("%s: %s", r.Name, r.Happened)
		}
	}
	if report.Count(check.Passed) < 12 {
		t.Errorf("%d checks have passed: %+v", report.Count(check.Passed), report.Results)
	}
}

// An interface goes into the first container that starts, is not moved again, goes into the pod's
// next sandbox as it was, and is back when its claim is gone.
func TestClaimLife(t *testing.T) {
	b, host := serveClaims(t)
	const device, vars = "pci-0000-81-00-1", "/dev/infiniband/uverbs1 /dev/infiniband/issm1 " +
		"/dev/infiniband/umad1 " +
		"ENI_EXAMPLE_COM_VF_MACS=b8:ce:f6:00:00:06 ENI_EXAMPLE_COM_VF_NAMES=ens8f0v0 " +
		"PCIDEVICE_EXAMPLE_COM_VF=0000:81:00.1"
	c := b.claim("one", device)
	if err := b.prepare(c); err != "" {
		t.Fatal(err)
	}
	gets := func(want string) {
		t.Helper()
		b.eventually("containers get what they should", func() error {
			if got := b.gets(c); got != want {
				return fmt.Errorf("they get\n%s\nwant\n%s", got, want)
			}
			return nil
		})
	}
	gets("ens8f0v0 as ens8f0v0 " + vars)
	if err := b.prepare(b.claim("other", device)); !strings.Contains(err, "is prepared for the claim default/one") {
		t.Errorf("another claim gets it: %q", err)
	}
	for range 2 {
		host.Take(t, b.places.Sysfs, "ens8f0v0", "net1")
		gets(vars)
		if err := b.prepare(c); err != "" {
			t.Errorf("prepared again: %s", err)
		}
		if _, back := host.Has("ens8f0v0"); back {
			t.Error("preparing it again has taken it from its container")
		}
		host.End()
		gets("ens8f0v0 as ens8f0v0 " + vars)
		if is, _ := host.Has("ens8f0v0"); is.MTU != 9000 {
			t.Errorf("the next sandbox gets %+v", is)
		}
	}
	b.tainted(device, false)
	host.Take(t, b.places.Sysfs, "ens8f0v0", "net1")
	host.Break(errors.New("no"))
	for range 2 {
		if err := b.unprepare(c); err != "" {
			t.Fatal(err)
		}
	}
	b.tainted(device, true)
	if err := b.prepare(b.claim("soon", device)); !strings.Contains(err, "is unhealthy: it is not as it was") {
		t.Errorf("nobody has restored it, and another claim gets it: %q", err)
	}
	host.Break(nil)
	b.tainted(device, false)
	if is, home := host.Has("ens8f0v0"); !home || is.MTU != 9000 {
		t.Errorf("it is back as %+v", is)
	}
}

// A claim for administration sees an interface, and neither moves nor releases it. One without a
// carrier is nobody's.
func TestClaimHealth(t *testing.T) {
	b, host := serveClaims(t)
	const device = "pci-0000-00-06-0"
	owner, admin := b.claim("owner", device), b.claim("admin", "admin of "+device)
	if err := b.prepare(owner); err != "" {
		t.Fatal(err)
	}
	host.Take(t, b.places.Sysfs, "eth1", "net1")
	if err := b.prepare(admin); err != "" {
		t.Fatal(err)
	}
	if got := b.gets(admin); strings.Contains(got, " as ") || !strings.Contains(got, "NAMES=eth1") {
		t.Errorf("an administrator gets %s", got)
	}
	if err := b.unprepare(admin); err != "" {
		t.Error(err)
	}
	if _, back := host.Has("eth1"); back {
		t.Error("it has come back with its administrator")
	}
	if err := b.unprepare(owner); err != "" {
		t.Error(err)
	}
	if _, back := host.Has("eth1"); !back {
		t.Error("it has not come back with its claim")
	}
	host.Carrier("eth1", false)
	b.tainted(device, true)
	if err := b.prepare(b.claim("late", device)); !strings.Contains(err, "unhealthy: it has no carrier") {
		t.Errorf("without a carrier: %q", err)
	}
	host.Carrier("eth1", true)
	b.tainted(device, false)
}

// An interface that a device plugin lists is not offered, and no claim gets it.
func TestClaimAndPlugin(t *testing.T) {
	b, host := serveClaims(t)
	const device = "pci-0000-81-00-2"
	host.Carrier("ens8f0v1", true)
	b.tainted(device, false)
	c := b.claim("one", device)
	agent := eni.ServeAgent(t, b.places.PodResources)
	for _, listed := range []bool{true, false} {
		agent.Lists(map[bool][]string{true: {"0000:81:00.2"}}[listed]...)
		host.Look()
		b.eventually(fmt.Sprintf("listed: %t", listed), func() error {
			if _, published := b.devices()[device]; published == listed {
				return fmt.Errorf("published: %t", published)
			}
			return nil
		})
		if err := b.prepare(c); (err != "") != listed {
			t.Errorf("listed: %t; prepared: %q", listed, err)
		}
	}
	if !strings.Contains(b.said.String(), "is not offered: the device plugin of example.com/sriov lists it") {
		t.Error("nobody is told")
	}
}
