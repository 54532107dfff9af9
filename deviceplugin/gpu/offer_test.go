package gpu

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/deviceplugin/gpu/prefer"
)

// gpus returns a snapshot of n GPUs with MIG devices of the given profiles.
func gpus(n int, profiles ...[]string) (s Snapshot) {
	for i := range n {
		g := GPU{UUID: fmt.Sprintf("GPU-%d", i), Index: i, Minor: i}
		if i < len(profiles) && profiles[i] != nil {
			g.MIG = true
			for m, profile := range profiles[i] {
				g.Instances = append(g.Instances, Instance{UUID: fmt.Sprintf("MIG-%d-%d", i, m),
					Profile: profile, GPU: m, Nodes: []string{fmt.Sprintf("/dev/cap%d", m)}})
			}
		}
		s.GPUs = append(s.GPUs, g)
		s.Links = append(s.Links, make([]prefer.Link, n))
	}
	return s
}

func healthy() facts {
	return facts{func(GPU, *Instance) []Trouble { return nil }, func(string) bool { return true }}
}

// summary returns "resource: id id" for each resource.
func summary(all offers) string {
	var out []string
	for _, resource := range slices.Sorted(maps.Keys(all.resources)) {
		var ids []string
		for _, d := range all.resources[resource].devices {
			ids = append(ids, d.id)
		}
		out = append(out, strings.TrimPrefix(resource, "nvidia.com/")+": "+strings.Join(ids, " "))
	}
	return strings.Join(append(out, all.refused...), "\n")
}

func TestOffers(t *testing.T) {
	one, big := []string{"1g.10gb", "1g.10gb"}, []string{"3g.40gb", "1g.10gb+me"}
	share := func(o Sharing) []Sharing {
		o.Resource = GPUResource
		return []Sharing{o}
	}
	for _, c := range []struct {
		name string
		s    Snapshot
		mig  MIGStrategy
		sh   []Sharing
		want string
	}{
		{"whole", gpus(2), MIGNone, nil, "gpu: GPU-0 GPU-1"},
		{"none looks at no MIG", gpus(2, one), MIGNone, nil, "gpu: GPU-0 GPU-1"},
		{"mixed", gpus(2, big), MIGMixed, nil,
			"gpu: GPU-1\nmig-1g.10gb.me: MIG-0-1\nmig-3g.40gb: MIG-0-0"},
		{"mixed, not divided", gpus(2, []string{}), MIGMixed, nil,
			"gpu: GPU-1\nGPU 0 is in MIG mode and not divided: make MIG devices, or leave the mode"},
		{"single", gpus(2, one, one), MIGSingle, nil, "gpu: MIG-0-0 MIG-0-1 MIG-1-0 MIG-1-1"},
		{"single without MIG", gpus(2), MIGSingle, nil, "gpu: GPU-0 GPU-1"},
		{"single, some", gpus(2, one), MIGSingle, nil, "MIG strategy single: 1 of 2 GPUs are in MIG " +
			"mode; all or none have to be, or use the strategy mixed"},
		{"single, several", gpus(1, big), MIGSingle, nil, "MIG strategy single: the MIG devices " +
			"have several profiles; make them equal, or use the strategy mixed"},
		{"shared", gpus(2), MIGNone, share(Sharing{As: GPUResource, Replicas: 2}),
			"gpu: GPU-0::0 GPU-0::1 GPU-1::0 GPU-1::1"},
		{"one of them shared", gpus(2), MIGNone,
			share(Sharing{As: "nvidia.com/gpu.shared", Replicas: 2, Devices: []string{"1"}}),
			"gpu: GPU-0\ngpu.shared: GPU-1::0 GPU-1::1"},
		{"one shared by count", gpus(2), MIGNone,
			share(Sharing{As: "nvidia.com/gpu.shared", Replicas: 2, Count: 1}),
			"gpu: GPU-1\ngpu.shared: GPU-0::0 GPU-0::1"},
	} {
		if got := summary(offersOf(c.s, Settings{MIG: c.mig, Shared: c.sh}, healthy())); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

// Without their control daemon, devices shared by MPS are unhealthy, with a reason.
func TestMPSWithoutDaemon(t *testing.T) {
	f := healthy()
	f.mps = func(string) bool { return false }
	all := offersOf(gpus(1), Settings{MPSRoot: "/mps", Shared: []Sharing{{Resource: GPUResource,
		As: GPUResource, Replicas: 2, MPS: true}}}, f)
	for _, d := range all.resources[GPUResource].devices {
		if reasonOf(d.troubles) != NoMPS || len(d.troubles) != 1 {
			t.Errorf("%s: %v", d.id, d.troubles)
		}
	}
}

// pick returns devices of an offer by id.
func pick(t *testing.T, o offer, ids ...string) (out []device) {
	t.Helper()
	for _, id := range ids {
		at := slices.IndexFunc(o.devices, func(d device) bool { return d.id == id })
		if at < 0 {
			t.Fatalf("there is no %s", id)
		}
		out = append(out, o.devices[at])
	}
	return out
}

// Replicas come from the least used units, MIG devices from where they leave GPUs whole.
func TestChoose(t *testing.T) {
	replicas := Settings{Shared: []Sharing{{Resource: GPUResource, As: GPUResource, Replicas: 3}}}
	together := Settings{Shared: []Sharing{
		{Resource: GPUResource, As: GPUResource, Replicas: 3, Packed: true},
	}}
	all := []string{"GPU-0::0", "GPU-0::1", "GPU-0::2", "GPU-1::0", "GPU-1::1", "GPU-1::2"}
	for _, c := range []struct {
		name            string
		s               Snapshot
		set             Settings
		resource        string
		available, must []string
		size            int
		want            string
	}{
		{"least used", gpus(2), replicas, GPUResource,
			[]string{"GPU-0::2", "GPU-1::0", "GPU-1::1"}, nil, 1, "GPU-1::0"},
		{"spread", gpus(2), replicas, GPUResource,
			[]string{"GPU-0::1", "GPU-0::2", "GPU-1::1", "GPU-1::2"}, nil, 2, "GPU-0::1 GPU-1::1"},
		{"spread over what is in use", gpus(2), replicas, GPUResource,
			[]string{"GPU-0::2", "GPU-1::0", "GPU-1::1", "GPU-1::2"}, nil, 2, "GPU-1::0 GPU-0::2"},
		{"spread as far as it goes", gpus(2), replicas, GPUResource,
			[]string{"GPU-0::2", "GPU-1::0", "GPU-1::1", "GPU-1::2"}, nil, 3,
			"GPU-1::0 GPU-0::2 GPU-1::1"},
		{"shares packed", gpus(2), together, GPUResource, all, nil, 2, "GPU-0::0 GPU-0::1"},
		{"shares packed where most are in use", gpus(2), together, GPUResource,
			[]string{"GPU-0::0", "GPU-0::1", "GPU-0::2", "GPU-1::1", "GPU-1::2"}, nil, 2,
			"GPU-1::1 GPU-1::2"},
		{"shares packed beside what must be", gpus(2), together, GPUResource, all,
			[]string{"GPU-1::0"}, 2, "GPU-1::0 GPU-1::1"},
		{"shares packed that no GPU has", gpus(2), together, GPUResource, all, nil, 4,
			"GPU-0::0 GPU-0::1 GPU-0::2 GPU-1::0"},
		{"must counts as used", gpus(2), replicas, GPUResource,
			[]string{"GPU-0::1", "GPU-0::2", "GPU-1::1", "GPU-1::2"}, []string{"GPU-0::1"}, 2,
			"GPU-0::1 GPU-1::1"},
		{"packed", gpus(2, []string{"a", "a", "a"}, []string{"a"}), Settings{MIG: MIGMixed},
			"nvidia.com/mig-a", []string{"MIG-0-0", "MIG-0-1", "MIG-0-2", "MIG-1-0"}, nil, 1, "MIG-1-0"},
		{"packed together", gpus(2, []string{"a", "a", "a"}, []string{"a"}), Settings{MIG: MIGMixed},
			"nvidia.com/mig-a", []string{"MIG-0-0", "MIG-0-1", "MIG-0-2", "MIG-1-0"}, nil, 2,
			"MIG-0-0 MIG-0-1"},
		{"beside what must be", gpus(2, []string{"a", "a", "a"}, []string{"a"}),
			Settings{MIG: MIGMixed}, "nvidia.com/mig-a",
			[]string{"MIG-0-0", "MIG-0-1", "MIG-1-0"}, []string{"MIG-0-0"}, 2, "MIG-0-0 MIG-0-1"},
	} {
		o := offersOf(c.s, c.set, healthy()).resources[c.resource]
		var got []string
		for _, d := range o.choose(c.s.Links, pick(t, o, c.available...), pick(t, o, c.must...),
			c.size) {
			got = append(got, d.id)
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: %s, want %s", c.name, text, c.want)
		}
	}
}

// Each strategy produces what its runtime reads, and all together produce all of it.
func TestAnswers(t *testing.T) {
	s := gpus(2)
	s.StandIn = "/dev/null"
	o := offersOf(s, Settings{}, healthy()).resources[GPUResource]
	answer := func(set Settings, ids ...string) *v1beta1.ContainerAllocateResponse {
		set.DevRoot = t.TempDir() // has no control nodes
		set.CDI.AnnotationPrefix = "cdi.k8s.io/"
		out, err := o.answer(GPUResource, pick(t, o, ids...), set)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	all := answer(Settings{List: []ListStrategy{EnvVar, CDIAnnotations, CDICRI},
		PassDeviceSpecs: true, Extras: []Extra{GDS}}, "GPU-1", "GPU-0")
	if got := all.Envs; got[visibleDevices] != "GPU-0,GPU-1" || got["NVIDIA_GDS"] != "enabled" {
		t.Errorf("variables: %v", got)
	}
	const kind = "k8s.device-plugin.nvidia.com/gpu="
	if got := all.Annotations["cdi.k8s.io/nvidia-device-plugin_GPU-0"]; got != kind+"GPU-0,"+
		kind+"GPU-1,k8s.device-plugin.nvidia.com/gds=all" {
		t.Errorf("annotations: %v", all.Annotations)
	}
	if len(all.CdiDevices) != 3 || all.CdiDevices[1].Name != kind+"GPU-1" {
		t.Errorf("CDI: %v", all.CdiDevices)
	}
	if len(all.Devices) != 2 || all.Devices[1].ContainerPath != "/dev/nvidia1" {
		t.Errorf("device nodes: %v", all.Devices)
	}
	mounts := answer(Settings{List: []ListStrategy{VolumeMounts}, ID: ByIndex}, "GPU-1")
	if len(mounts.Mounts) != 1 || mounts.Mounts[0].ContainerPath != mountsDir+"/1" ||
		mounts.Envs[visibleDevices] != mountsDir || mounts.Devices != nil {
		t.Errorf("mounts: %v", mounts)
	}
}

// Two shares of a GPU give one GPU; with OnlyOne they are refused.
func TestAnswersOfShares(t *testing.T) {
	set := Settings{List: []ListStrategy{EnvVar}, MPSRoot: "/run/mps", Shared: []Sharing{{
		Resource: GPUResource, As: "nvidia.com/gpu.shared", Replicas: 2, MPS: true}}}
	o := offersOf(gpus(1), set, healthy()).resources["nvidia.com/gpu.shared"]
	two := pick(t, o, "GPU-0::0", "GPU-0::1")
	out, err := o.answer("nvidia.com/gpu.shared", two, set)
	if err != nil || out.Envs[visibleDevices] != "GPU-0" ||
		out.Envs["CUDA_MPS_PIPE_DIRECTORY"] != "/mps/nvidia.com/gpu.shared/pipe" ||
		len(out.Mounts) != 2 || out.Mounts[0].HostPath != "/run/mps/nvidia.com/gpu.shared/pipe" {
		t.Errorf("%v: %v", out, err)
	}
	o.shared.OnlyOne = true
	if _, err := o.answer("nvidia.com/gpu.shared", two, set); err == nil ||
		!strings.Contains(err.Error(), "ask for 1") {
		t.Errorf("two are given: %v", err)
	}
}

// Devices without UUID or with a duplicate one cannot be told apart: only the first is offered.
func TestSameUUID(t *testing.T) {
	s := gpus(4, []string{"1g.10gb", "1g.10gb", "1g.10gb"})
	s.GPUs[2].UUID, s.GPUs[3].UUID = s.GPUs[1].UUID, ""
	s.GPUs[0].Instances[2].UUID = s.GPUs[0].Instances[0].UUID
	set := Defaults()
	set.MIG = MIGMixed
	all := offersOf(s, set, facts{health: func(GPU, *Instance) []Trouble { return nil }})
	whole, parts := all.resources[GPUResource].devices, all.resources["nvidia.com/mig-1g.10gb"].devices
	if len(whole) != 1 || len(parts) != 2 {
		t.Errorf("%d GPUs and %d MIG devices are offered", len(whole), len(parts))
	}
	if len(all.refused) != 3 {
		t.Errorf("it says %q", all.refused)
	}
}

// GPUs, MIG devices and replicas are where the driver says that their GPU is.
func TestPlacesOfGPUs(t *testing.T) {
	s := gpus(2, nil, []string{"1g.10gb"})
	s.GPUs[1].Bus = "0000:9d:00.0"
	for _, c := range []struct {
		resource string
		share    []Sharing
		want     map[string]string
	}{
		{resource: GPUResource, want: map[string]string{}},
		{resource: migPrefix + "1g.10gb", want: map[string]string{"MIG-1-0": "0000:9d:00.0"}},
		{resource: "nvidia.com/part", want: map[string]string{"MIG-1-0::0": "0000:9d:00.0",
			"MIG-1-0::1": "0000:9d:00.0"},
			share: []Sharing{{Resource: migPrefix + "1g.10gb", As: "nvidia.com/part", Replicas: 2}}},
	} {
		one := newServer(c.resource, Config{})
		one.publish(offersOf(s, Settings{MIG: MIGMixed, Shared: c.share}, healthy()).resources[c.resource], nil)
		got := one.places()
		maps.DeleteFunc(got, func(_, at string) bool { return at == "" })
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.resource, got, c.want)
		}
	}
}
