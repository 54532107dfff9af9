package allocation

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/deviceplugin/dra/places"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// useOf is a claim "gpu" with devices at these places.
func useOf(at ...claim.Place) claim.Use {
	u := use("gpu")
	for i, place := range at {
		u.Devices = append(u.Devices, claim.Device{Request: "r", Driver: "gpu.example.com", Pool: "node",
			Name: fmt.Sprint("gpu-", i), Place: place})
	}
	return u
}

// holder is another pod with these holdings.
func holder(held ...Holding) Holdings {
	return HoldingsOf(Pod{UID: "other", Namespace: "ml", Name: "other",
		Containers: map[string]Container{"main": held}})
}

// claimsOf are a pod's claims as it holds them.
func claimsOf(u claim.Use) Claims {
	return Claims{{Name: u.Pod, UID: u.UID, Devices: u.Devices}}
}

// Devices of a plugin that are the same hardware as what a claim has, of another pod or of the pod
// itself, are not given to anybody, and the message names both.
func TestPluginsLeaveOutWhatClaimsHave(t *testing.T) {
	all := make([]claim.Place, 8)
	for i := range all {
		all[i] = claim.Place{UUID: fmt.Sprint("GPU-", i)}
	}
	address := dgxView(t, topology.None).Inventory.Resources["nvidia.com/gpu"].Addresses["GPU-0"]
	const one = "nvidia.com/gpu"
	for _, c := range []struct {
		name, want string // the device; else part of the message
		policy     topology.Policy
		other      Holdings
		own        []claim.Use
		chosen     string
	}{
		{name: "nothing claimed", want: "GPU-0"},
		{name: "by UUID", other: holder(claimsOf(useOf(all[0]))), want: "GPU-1"},
		{name: "by address", other: holder(claimsOf(useOf(claim.Place{PCI: address}))), want: "GPU-1"},
		{name: "a partition of it", want: "GPU-1",
			other: holder(claimsOf(useOf(claim.Place{UUID: "MIG-1", Parent: "GPU-0"})))},
		{name: "by the pod itself", own: []claim.Use{useOf(all[0], all[1])}, want: "GPU-2"},
		{name: "all by another pod", other: holder(claimsOf(useOf(all...))),
			want: "Requested: 1, Available: 0; device GPU-0 of nvidia.com/gpu and device " +
				"gpu.example.com/node/gpu-0 of claim gpu, which pod ml/other has, are the same hardware: both " +
				"have the UUID GPU-0; "},
		{name: "all, and a topology policy", other: holder(claimsOf(useOf(all...))),
			policy: topology.SingleNUMANode, want: "Resources cannot be allocated with Topology locality; " +
				"device GPU-0 of nvidia.com/gpu and device gpu.example.com/node/gpu-0 of claim gpu"},
		{name: "chosen by a user", other: holder(claimsOf(useOf(all[0]))), chosen: "GPU-0",
			want: `chooses device "GPU-0", and device GPU-0 of nvidia.com/gpu and device ` +
				"gpu.example.com/node/gpu-0 of claim gpu"},
	} {
		v := dgxView(t, cmp.Or(c.policy, topology.None))
		v.Taken, v.Claims.Uses = c.other, c.own
		pod := requesting(one + "=1")
		if c.own != nil {
			podtest.Claims("gpu=gpu-1")(pod)
		}
		if c.chosen != "" {
			pod.Spec.SchedulerName = "s"
			pod.Annotations = map[string]string{podspec.ChoiceAnnotation("nvidia.com/gpu", "main"): c.chosen}
			v.Chosen, _ = podspec.ChosenDevices(pod, topology.Choosers{{Scheduler: "s"}})
		}
		plan, err := v.Plan(pod, nil)
		if err != nil {
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v\nwant %s", c.name, err, c.want)
			}
			continue
		}
		if set, _ := plan.Pod.Containers["main"].device(one); !slices.Equal(set.IDs,
			[]string{c.want}) {
			t.Errorf("%s: got %v, want %s", c.name, set.IDs, c.want)
		}
	}
}

// A claim with a device that somebody has from a plugin is refused, with words that name both. One with
// administrative access takes nothing from anybody, and a claim that the pod has already stays.
func TestClaimsAreRefusedThatPluginsGave(t *testing.T) {
	given := func(id, address string) Holdings {
		return holder(Devices{{Resource: "nvidia.com/gpu", IDs: []string{id}, Addresses: []string{address}}})
	}
	const pci = "0000:1b:00.0"
	admin := useOf(claim.Place{UUID: "GPU-0"})
	admin.Devices[0].Admin = true
	again := useOf(claim.Place{UUID: "GPU-0"})
	again.UID = "made-again"
	answered := Devices{{Resource: "nvidia.com/gpu", IDs: []string{"GPU-0"}, Answer: []byte{}}}
	for _, c := range []struct {
		name  string
		other Holdings
		own   Container
		use   claim.Use
		why   string // "": it is not refused
	}{
		{name: "another GPU", other: given("GPU-1", ""), use: useOf(claim.Place{UUID: "GPU-0"})},
		{name: "by UUID", other: given("GPU-0", ""), use: useOf(claim.Place{UUID: "GPU-0"}),
			why: "DeviceHasOwner: claim gpu cannot be used: device gpu.example.com/node/gpu-0 of claim gpu and " +
				"device GPU-0 of nvidia.com/gpu, which pod ml/other has, are the same hardware: both have the " +
				"UUID GPU-0"},
		{name: "a replica", other: given("GPU-0::3", ""), use: useOf(claim.Place{UUID: "GPU-0"}),
			why: "device GPU-0::3 of nvidia.com/gpu"},
		{name: "the address that the plugin named", other: given("card-7", pci),
			use: useOf(claim.Place{PCI: pci}), why: "both are the PCI device " + pci},
		{name: "the whole of a partition", other: given("MIG-1", pci),
			use: useOf(claim.Place{UUID: "GPU-0", PCI: pci}), why: "partition of the other"},
		{name: "a partition of the whole", other: given("GPU-0", pci),
			use: useOf(claim.Place{UUID: "MIG-1", Parent: "GPU-0", PCI: pci}), why: "partition of"},
		{name: "another partition", other: given("MIG-2", pci),
			use: useOf(claim.Place{UUID: "MIG-1", Parent: "GPU-0", PCI: pci})},
		{name: "owed to a plugin", other: PendingRelease{Namespace: "ml", Name: "gone", Resource: "nvidia.com/gpu",
			IDs: []string{"GPU-0"}}.Holdings(), use: useOf(claim.Place{UUID: "GPU-0"}), why: "pod ml/gone"},
		{name: "an administrator", other: given("GPU-0", ""), use: admin},
		{name: "by the pod's other container", own: Container{answered}, use: useOf(claim.Place{UUID: "GPU-0"}),
			why: "which container side has"},
		{name: "the pod has both already", other: given("GPU-0", ""),
			own: Container{answered, claimsOf(useOf(claim.Place{UUID: "GPU-0"}))},
			use: useOf(claim.Place{UUID: "GPU-0"})},
		{name: "the pod has an earlier claim of that name", other: given("GPU-0", ""),
			own: Container{claimsOf(useOf(claim.Place{UUID: "GPU-1"}))}, use: again,
			why: "both have the UUID GPU-0"},
	} {
		for _, lack := range []claim.Lack{{}, {Reason: claim.ReasonWaitDriver, Why: "no driver"}} {
			v := dgxView(t, topology.None)
			v.Taken, v.Claims = c.other, PodClaims{[]claim.Use{c.use}, lack}
			if c.own != nil {
				v.Own.Containers, v.Keep = map[string]Container{"side": c.own}, KeepAll
			}
			_, err := v.Plan(requesting("", "gpu=gpu-1"), nil)
			refused, is := errors.AsType[*Rejection](err)
			switch {
			case c.why == "" && is, c.why == "" && err != nil && lack.Reason == "":
				t.Errorf("%s: %v", c.name, err)
			case c.why != "" && (!is || refused.Reason != ReasonOwned || !strings.Contains(err.Error(), c.why)):
				t.Errorf("%s, lacking %q: %v\nwant %s", c.name, lack.Reason, err, c.why)
			}
		}
	}
}

// What a plugin named as a device's address is recorded with the device.
func TestAddressesAreRecorded(t *testing.T) {
	v := dgxView(t, topology.None)
	plan, err := v.Plan(requesting("nvidia.com/gpu=2 rdma/nic=1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(plan.Pod)
	if err != nil {
		t.Fatal(err)
	}
	var back Pod
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	for _, set := range back.Containers["main"].Devices() {
		for i, id := range set.IDs {
			want := v.Inventory.Resources[set.Resource].Addresses[id]
			if got := set.AddressOf(i); got != want {
				t.Errorf("%s: the address is %q, want %q", id, got, want)
			}
		}
	}
}

// The ledger's index answers as a comparison of each device with each one of all other pods, whatever
// comes and goes.
func TestHardwareIndex(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		gpu := devicemanager.Resource{Name: "gpu", Addresses: map[string]string{}}
		for i := range 6 {
			gpu.Devices = append(gpu.Devices, &devicemanager.Device{ID: fmt.Sprint("GPU-", i)},
				&devicemanager.Device{ID: fmt.Sprint("GPU-", i, "::1")}, &devicemanager.Device{ID: fmt.Sprint("card-", i)})
			gpu.Addresses[fmt.Sprint("card-", i)] = fmt.Sprintf("0000:0%d:00.0", i)
		}
		var ledger Ledger
		pods := map[types.UID]Pod{}
		for step := range 300 {
			uid := types.UID(fmt.Sprint("p", r.IntN(8)))
			if r.IntN(4) == 0 {
				delete(pods, uid)
				ledger = ledger.Without(uid)
			} else {
				pods[uid] = randomOwner(r, uid, gpu)
				standing := []Hold{Held, Claimed, Terminating}[r.IntN(3)]
				ledger = ledger.With(uid, Entry{Hold: standing, Assigned: HoldingsOf(pods[uid])})
			}
			me := types.UID(fmt.Sprint("p", r.IntN(8)))
			want := sets.New[string]()
			for _, d := range gpu.Devices {
				if byClaims(pods, me, places.OfPlugin("gpu", d.ID, gpu.Addresses[d.ID])) {
					want.Insert(d.ID)
				}
			}
			if got := ledger.Beside(me, nil).Taken.ByClaims(gpu); !sets.KeySet(got).Equal(want) {
				t.Fatalf("seed %d, step %d: claims have %v, want %v", seed, step, got, sets.List(want))
			}
			for other := range pods {
				a, b := HoldingsOf(pods[me]).owners(), HoldingsOf(pods[other])
				overlap := slices.ContainsFunc(find(b, hardware(nil)), func(o owner) bool { return a.other(o) != "" })
				if got := find(b, hardware(nil)).overlaps(HoldingsOf(pods[me])); got != overlap {
					t.Fatalf("seed %d, step %d: overlaps %t", seed, step, got)
				}
			}
		}
		for uid := range pods {
			ledger = ledger.Without(uid)
		}
		if all := ledger.Beside("", nil).Taken.owners(); !all.empty() || all.claims != 0 {
			t.Errorf("seed %d: without pods there is left %v", seed, all)
		}
	}
}

func randomOwner(r *rand.Rand, uid types.UID, gpu devicemanager.Resource) Pod {
	var c Container
	if r.IntN(2) == 0 {
		c.set(NewDeviceSet(gpu, []string{gpu.Devices[r.IntN(len(gpu.Devices))].ID}).alone())
	}
	if r.IntN(2) == 0 {
		n := r.IntN(6)
		at := []claim.Place{{UUID: fmt.Sprint("GPU-", n)}, {PCI: fmt.Sprintf("0000:0%d:00.0", n)},
			{UUID: fmt.Sprint("MIG-", n), Parent: fmt.Sprint("GPU-", n)}, {}}[r.IntN(4)]
		u := useOf(at)
		u.Devices[0].Admin = r.IntN(5) == 0
		c.set(claimsOf(u))
	}
	return Pod{UID: uid, Namespace: "n", Name: string(uid), Containers: map[string]Container{"main": c}}
}

func (d DeviceSet) alone() Devices { return Devices{d} }

// byClaims reports whether a claim of a pod but this one has the hardware.
func byClaims(pods map[types.UID]Pod, but types.UID, is places.Identity) bool {
	for uid, p := range pods {
		for _, one := range p.Containers["main"].Claims() {
			for _, d := range one.Devices {
				if uid != but && !d.Admin && places.Same(is, places.OfClaim("c", d)) != "" {
					return true
				}
			}
		}
	}
	return false
}
