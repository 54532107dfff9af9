package dra

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/numalet/numalet/deviceplugin/gpu"
	"github.com/numalet/numalet/deviceplugin/gpu/mock"
)

// bench is a driver whose calls are made directly.
type bench struct {
	*Driver
	t   *testing.T
	rig *mock.Rig
	dir string
}

// benchOf returns a driver on a simulated machine. Its directory of CDI specs may be that of
// another one, which was killed.
func benchOf(t *testing.T, r *mock.Rig, dir string, change func(*Options)) *bench {
	t.Helper()
	o := options()
	if change != nil {
		change(&o)
	}
	set := gpu.Defaults()
	set.CDI.Dir = dir
	d, err := New(Config{Config: gpu.Config{Driver: r, Settings: set}, Options: o,
		Claims: claimsOf(t.TempDir(), fake.NewClientset())})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{d, t, r, dir}
	b.look()
	return b
}

// look has the driver read the GPUs.
func (b *bench) look(orders ...string) { b.follow(stateOf(b.t, b.rig, orders...)) }

// claimOf returns a claim with these devices of the driver.
func claimOf(name string, devices ...string) *resourcev1.ResourceClaim {
	out := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "default", UID: types.UID("uid-" + name)}}
	out.Status.Allocation = &resourcev1.AllocationResult{}
	for _, device := range devices {
		out.Status.Allocation.Devices.Results = append(out.Status.Allocation.Devices.Results,
			resourcev1.DeviceRequestAllocationResult{Request: "gpu", Driver: gpu.DriverName,
				Pool: "node", Device: device})
	}
	return out
}

func (b *bench) prepare(claim *resourcev1.ResourceClaim) ([]kubeletplugin.Device, error) {
	b.t.Helper()
	all, err := b.PrepareResourceClaims(b.t.Context(), []*resourcev1.ResourceClaim{claim})
	if err != nil {
		b.t.Fatal(err)
	}
	return all[claim.UID].Devices, all[claim.UID].Err
}

func (b *bench) unprepare(claim *resourcev1.ResourceClaim) error {
	b.t.Helper()
	all, err := b.UnprepareResourceClaims(b.t.Context(), []kubeletplugin.NamespacedObject{{
		NamespacedName: types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name},
		UID:            claim.UID}})
	if err != nil {
		b.t.Fatal(err)
	}
	return all[claim.UID]
}

// refused fails the test unless the error has all the words.
func refused(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("error %v; want one with %q", err, word)
		}
	}
}

// files returns the CDI specs of claims.
func (b *bench) files() []string {
	b.t.Helper()
	out, err := filepath.Glob(filepath.Join(b.dir, "*-claim_*"))
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// resolve returns the device nodes that a container gets for the CDI ids.
func (b *bench) resolve(ids []string) (out []string) {
	b.t.Helper()
	cache, err := cdi.NewCache(cdi.WithSpecDirs(b.dir), cdi.WithAutoRefresh(false))
	if err != nil {
		b.t.Fatal(err)
	}
	for _, id := range ids {
		d := cache.GetDevice(id)
		if d == nil {
			b.t.Errorf("nothing is known by %s: %v", id, cache.GetErrors())
			continue
		}
		for _, n := range d.ContainerEdits.DeviceNodes {
			out = append(out, n.Path)
		}
	}
	return out
}

// A claim gets its devices, again the same ones, also from a process that was started anew; and
// nothing is left after it.
func TestPrepare(t *testing.T) {
	r, dir := rigOf(t, "dgxh100"), t.TempDir()
	b := benchOf(t, r, dir, nil)
	claim := claimOf("pair", "gpu-2", "gpu-5")
	first, err := b.prepare(claim)
	if err != nil {
		t.Fatal(err)
	}
	if len(first) != 2 || first[1].DeviceName != "gpu-5" || first[1].PoolName != "node" ||
		!slices.Equal(first[0].Requests, []string{"gpu"}) {
		t.Errorf("%+v", first)
	}
	if got := b.resolve(first[1].CDIDeviceIDs); !slices.Equal(got, []string{"/dev/nvidia5"}) {
		t.Errorf("the second device gives %q", got)
	}
	for n := range 2 {
		again, err := b.prepare(claim)
		if err != nil || fmt.Sprint(again) != fmt.Sprint(first) {
			t.Errorf("run %d: prepared again: %+v, %v", n, again, err)
		}
		_, err = b.prepare(claimOf("other", "gpu-5"))
		refused(t, err, "gpu-5 is prepared for the claim default/pair (uid-pair)")
		b = benchOf(t, r, dir, nil)
	}
	for range 2 {
		if err := b.unprepare(claim); err != nil {
			t.Error(err)
		}
	}
	if got := b.files(); len(got) > 0 {
		t.Errorf("left behind: %q", got)
	}
	if _, err := b.prepare(claimOf("other", "gpu-5")); err != nil {
		t.Error(err)
	}
}

// What a claim cannot have is refused, by name.
func TestRefusals(t *testing.T) {
	b := benchOf(t, rigOf(t, "dgxh100"), t.TempDir(), nil)
	b.look("lose 3")
	_, err := b.prepare(claimOf("lost", "gpu-3"))
	refused(t, err, "gpu-3 is unhealthy: FellOffBus")
	_, err = b.prepare(claimOf("strange", "gpu-9"))
	refused(t, err, "gpu-9 is not there any more")
	elsewhere := claimOf("elsewhere", "gpu-1")
	elsewhere.Status.Allocation.Devices.Results[0].Pool = "other"
	_, err = b.prepare(elsewhere)
	refused(t, err, `pool "other"`, `"node"`)
	if got := b.files(); len(got) > 0 {
		t.Errorf("left behind: %q", got)
	}
	empty := benchOf(t, rigOf(t, "dgxh100"), t.TempDir(), nil)
	empty.follow(gpu.State{})
	_, err = empty.prepare(claimOf("early", "gpu-1"))
	refused(t, err, "has not answered yet")
}

func TestParameters(t *testing.T) {
	const head = `{"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"`
	const timeSlicing = `, "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": `
	for text, want := range map[string]string{
		head + `}`:                                 "",
		head + timeSlicing + `"Default"}}}`:        "",
		head + timeSlicing + `"Long"}}}`:           `sharing.timeSlicingConfig.interval "Long"`,
		head + `, "sharing": {"strategy": "MPS"}}`: `sharing.strategy "MPS"`,
		head + `, "more": 1}`:                      "more",
		`{"apiVersion": "resource.nvidia.com/v1beta1", "kind": "VfioDeviceConfig"}`: "VfioDeviceConfig",
		`{"apiVersion": "gpu.example.com/v1", "kind": "GpuConfig"}`:                 "gpu.example.com/v1",
		`[]`: "cannot unmarshal",
	} {
		claim := claimOf("set", "gpu-0")
		claim.Status.Allocation.Devices.Config = []resourcev1.DeviceAllocationConfiguration{
			{Source: resourcev1.AllocationConfigSourceClass,
				DeviceConfiguration: opaque("other.example.com", `[]`)},
			{Source: resourcev1.AllocationConfigSourceClaim,
				DeviceConfiguration: opaque(gpu.DriverName, text)},
		}
		b := benchOf(t, rigOf(t, "gb200"), t.TempDir(), nil)
		_, err := b.prepare(claim)
		if want == "" && err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if want != "" {
			refused(t, err, want, "FromClaim")
		}
	}
}

func opaque(driver, text string) resourcev1.DeviceConfiguration {
	return resourcev1.DeviceConfiguration{Opaque: &resourcev1.OpaqueDeviceConfiguration{
		Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(text)}}}
}

// Shares, and administrators, have a device beside others.
func TestShares(t *testing.T) {
	b := benchOf(t, rigOf(t, "dgxh100"), t.TempDir(), func(o *Options) { o.Shares.Most = 2 })
	share := func(name, id string) *resourcev1.ResourceClaim {
		claim := claimOf(name, "gpu-0")
		claim.Status.Allocation.Devices.Results[0].ShareID = new(types.UID(id))
		return claim
	}
	for _, name := range []string{"a", "b"} {
		got, err := b.prepare(share(name, "share-"+name))
		if err != nil || got[0].ShareID == nil || *got[0].ShareID != types.UID("share-"+name) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	_, err := b.prepare(claimOf("whole", "gpu-0"))
	refused(t, err, "is prepared for the claim")
	admin := claimOf("admin", "gpu-0")
	admin.Status.Allocation.Devices.Results[0].AdminAccess = new(true)
	b.look("lose 0")
	if _, err := b.prepare(admin); err != nil {
		t.Errorf("the administrator: %v", err)
	}
	for _, name := range []string{"a", "b"} {
		if err := b.unprepare(claimOf(name)); err != nil {
			t.Error(err)
		}
	}
	b.look("reset 0")
	if _, err := b.prepare(claimOf("whole", "gpu-0")); err != nil {
		t.Errorf("beside the administrator: %v", err)
	}
}
