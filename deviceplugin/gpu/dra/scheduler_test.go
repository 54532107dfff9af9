package dra

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/numalet/numalet/deviceplugin/gpu"
	"github.com/numalet/numalet/examples"
)

// scheduler is the scheduler's own allocator, with the classes and templates of the examples.
type scheduler struct {
	classes   map[string]*resourcev1.DeviceClass
	templates map[string]resourcev1.ResourceClaimSpec
	slices    []*resourcev1.ResourceSlice
	given     structured.AllocatedState
	cache     *cel.Cache
}

func (s *scheduler) List() (all []*resourcev1.DeviceClass, err error) {
	for _, class := range s.classes {
		all = append(all, class)
	}
	return all, nil
}

func (s *scheduler) Get(name string) (*resourcev1.DeviceClass, error) {
	if class := s.classes[name]; class != nil {
		return class, nil
	}
	return nil, fmt.Errorf("there is no class %s", name)
}

func schedulerOf(t testing.TB, i inventory) *scheduler {
	t.Helper()
	s := &scheduler{classes: map[string]*resourcev1.DeviceClass{},
		templates: map[string]resourcev1.ResourceClaimSpec{}, cache: cel.NewCache(20, cel.Features{}),
		given: structured.AllocatedState{AllocatedDevices: sets.New[structured.DeviceID](),
			AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
			AggregatedCapacity:       structured.NewConsumedCapacityCollection()}}
	for from, pattern := range map[fs.FS]string{examples.Cluster: "cluster/claims/*.yaml",
		examples.Claims: "claims/*.yaml"} {
		files, err := fs.Glob(from, pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%v: %q", err, files)
		}
		for _, file := range files {
			text, err := fs.ReadFile(from, file)
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range strings.Split(string(text), "\n---\n") {
				s.add(t, []byte(one))
			}
		}
	}
	pool := i.list().Resources("node").Pools["node"]
	for n, slice := range pool.Slices {
		s.slices = append(s.slices, &resourcev1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%05d", n)},
			Spec: resourcev1.ResourceSliceSpec{Driver: i.driver, NodeName: new("node"),
				Pool: resourcev1.ResourcePool{Name: "node", Generation: 1,
					ResourceSliceCount: int64(len(pool.Slices))},
				Devices: slice.Devices, SharedCounters: slice.SharedCounters}})
	}
	return s
}

func (s *scheduler) add(t testing.TB, text []byte) {
	t.Helper()
	var head struct {
		Kind              string
		metav1.ObjectMeta `json:"metadata"`
	}
	err := yaml.Unmarshal(text, &head)
	switch head.Kind {
	case "DeviceClass":
		s.classes[head.Name] = &resourcev1.DeviceClass{}
		err = yaml.UnmarshalStrict(text, s.classes[head.Name])
	case "ResourceClaimTemplate":
		var one resourcev1.ResourceClaimTemplate
		err = yaml.UnmarshalStrict(text, &one)
		s.templates[head.Name] = defaulted(one.Spec.Spec)
	case "ResourceClaim":
		var one resourcev1.ResourceClaim
		err = yaml.UnmarshalStrict(text, &one)
		s.templates[head.Name] = defaulted(one.Spec)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

// defaulted sets the defaults of the API.
func defaulted(claim resourcev1.ResourceClaimSpec) resourcev1.ResourceClaimSpec {
	for _, r := range claim.Devices.Requests {
		if r.Exactly.AllocationMode == "" {
			r.Exactly.AllocationMode = resourcev1.DeviceAllocationModeExactCount
			r.Exactly.Count = max(1, r.Exactly.Count)
		}
	}
	return claim
}

// allocate returns the devices for a claim; nil: there are none.
func (s *scheduler) allocate(ctx context.Context, claim resourcev1.ResourceClaimSpec) (
	names []string, err error) {
	allocator, err := structured.NewAllocator(ctx, structured.Features{AdminAccess: true,
		DeviceTaints: true, PartitionableDevices: true, PrioritizedList: true}, s.given, s, s.slices,
		s.cache)
	if err != nil {
		return nil, err
	}
	got, err := allocator.Allocate(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}},
		[]*resourcev1.ResourceClaim{{ObjectMeta: metav1.ObjectMeta{Name: "claim", Namespace: "default",
			UID: types.UID("uid")}, Spec: claim}})
	if err != nil || len(got) == 0 {
		return nil, err
	}
	for _, result := range got[0].Devices.Results {
		names = append(names, result.Device)
		s.given.AllocatedDevices.Insert(
			structured.MakeDeviceID(result.Driver, result.Pool, result.Device))
	}
	return names, nil
}

func (s *scheduler) free(device string) {
	s.given.AllocatedDevices.Delete(structured.MakeDeviceID(gpu.DriverName, "node", device))
}

// The scheduler gives the examples what they say, and no device that fails.
func TestSchedulerChooses(t *testing.T) {
	for _, test := range []struct {
		machine string
		orders  []string
		claims  []string
		want    string
	}{
		{"dgxh100", nil, []string{"one-gpu", "four-gpus", "one-gpu"},
			"[gpu-0] [gpu-4 gpu-5 gpu-6 gpu-7] [gpu-1]"},
		{"dgxh100", []string{"lose 0", "lose 5"}, []string{"one-gpu", "four-gpus"}, "[gpu-1] []"},
		{"dgxh100", nil, []string{"near-pair"}, "[]"}, // each has a root of its own
		{"dgxa100", []string{"lose 1"}, []string{"near-pair", "near-pair"},
			"[gpu-2 gpu-3] [gpu-4 gpu-5]"},
		{"gb200", nil, []string{"whole-node"}, "[gpu-0 gpu-1 gpu-2 gpu-3]"},
		{"dgxh100", []string{"mig 7 on"}, []string{"small", "small"},
			"[gpu-7-mig-1g10gb-19-0] [gpu-7-mig-1g10gb-19-1]"},
		{"dgxh100", []string{"mig 7 on", "lose 7"}, []string{"small"}, "[]"},
	} {
		o := options()
		o.Dynamic = true
		state := stateOf(t, rigOf(t, test.machine), test.orders...)
		s := schedulerOf(t, inventoryOf(state, o, time.Now()))
		var got []string
		for _, name := range test.claims {
			devices, err := s.allocate(t.Context(), s.templates[name])
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			got = append(got, fmt.Sprint(devices))
		}
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("%s after %q: %q get\n%s, want\n%s", test.machine, test.orders, test.claims, text,
				test.want)
		}
	}
}

// Whatever MIG devices the scheduler's allocator gives, in whatever order they come and go, the
// machine can make; and where it finds none, the machine has no place either.
func TestSchedulerDivides(t *testing.T) {
	r := rigOf(t, "dgxh100")
	o := options()
	o.Dynamic = true
	i := inventoryOf(stateOf(t, r, "mig 0 on", "mig 1 on"), o, time.Now())
	s := schedulerOf(t, i)
	profiles := []string{"1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"}
	rapid.Check(t, func(rt *rapid.T) {
		made := map[string]string{} // UUIDs by device
		remove := func(name string) {
			d, _ := i.find(name)
			if err := r.Remove(d.gpu.UUID, made[name]); err != nil {
				rt.Fatal(err)
			}
			s.free(name)
			delete(made, name)
		}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			var names []string
			for name := range made {
				names = append(names, name)
			}
			slices.Sort(names)
			if len(names) > 0 && rapid.IntRange(0, 2).Draw(rt, "goes") == 0 {
				remove(rapid.SampledFrom(names).Draw(rt, "which"))
				continue
			}
			profile := rapid.SampledFrom(profiles).Draw(rt, "profile")
			got, err := s.allocate(t.Context(), claimOfProfile(profile))
			if err != nil {
				rt.Fatal(err)
			}
			for _, name := range got {
				d, _ := i.find(name)
				instance, err := r.Divide(d.gpu.UUID, *d.place)
				if err != nil {
					rt.Fatalf("%s is allocated: %v", name, err)
				}
				made[name] = instance.UUID
			}
			if got != nil {
				continue
			}
			for _, d := range i.devices {
				if d.place != nil && d.place.Profile == profile {
					if instance, err := r.Divide(d.gpu.UUID, *d.place); err == nil {
						rt.Fatalf("%s is possible (%s), and not allocated", d.name, instance.UUID)
					}
				}
			}
		}
		for name := range made {
			remove(name)
		}
	})
}

func claimOfProfile(profile string) resourcev1.ResourceClaimSpec {
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
		Requests: []resourcev1.DeviceRequest{{Name: "mig", Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: "mig.nvidia.com", AllocationMode: resourcev1.DeviceAllocationModeExactCount,
			Count: 1, Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
				Expression: fmt.Sprintf("device.attributes['gpu.nvidia.com'].profile == '%s'", profile)}}},
		}}}}}
}
