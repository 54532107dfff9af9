package rig

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
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

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
)

// pairsBy is pairsMix with these claims and limits of the pods of one pair, and of two, and with pods that
// claim a GPU alone.
func pairsBy(t *testing.T, s *Site, pods ...string) Stream {
	t.Helper()
	mix, err := ParseMix([]byte(fmt.Sprintf(`name: pairs
load: 0.9
templates:
- {name: one, weight: 3, lifetime: {mean: 1h}, %s}
- {name: two, weight: 1, lifetime: {mean: 1h}, %s}
- {name: alone, weight: 1, lifetime: {mean: 1h}, claims: [{name: a, devices: {gpu: 1}}],
   containers: [{limits: {cpu: 4, memory: 8Gi}, claims: [a]}]}
`, pods[0], pods[1])))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := s.Generate(mix, Draw{Pods: 500, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// Claims for pairs under one PCIe root get such pairs, and others the first devices that are free. The
// node chooses a plugin's card beside the GPU of a claim; by ids it does not.
func TestPairsByClaim(t *testing.T) {
	s := site(t, "dgx-h100")
	const cpus1, cpus2 = "cpu: 4, memory: 8Gi", "cpu: 8, memory: 16Gi"
	both := func(n int, match string) string {
		return fmt.Sprintf("claims: [{name: a, devices: {gpu: %d, nic: %[1]d}%s}], "+
			"containers: [{limits: {cpu: %d, memory: 8Gi}, claims: [a]}]", n, match, 4*n)
	}
	const pair = "devices: {gpu: 1, nic: 1}, match: pcieRoot}"
	for _, test := range []struct {
		name   string
		pods   []string
		policy string
		all    bool // pairs are under one switch
	}{
		{"matched", []string{both(1, ", match: pcieRoot"), "claims: [{name: a, " + pair + ", {name: b, " + pair +
			"], containers: [{limits: {" + cpus2 + "}, claims: [a, b]}]"}, "none", true},
		{"not matched", []string{both(1, ""), both(2, "")}, "none", false},
		{"cards from a plugin", []string{
			"claims: [{name: a, devices: {gpu: 1}}], containers: [{limits: {" + cpus1 +
				", example.com/nic: 1}, claims: [a]}]",
			"claims: [{name: a, devices: {gpu: 2}}], containers: [{limits: {" + cpus2 +
				", example.com/nic: 2}, claims: [a]}]"}, "none", true},
		{"cards by ids", []string{
			"claims: [{name: a, devices: {gpu: 1}}], containers: [{limits: {" + cpus1 +
				", example.com/nic: 1}, claims: [a]}]",
			"claims: [{name: a, devices: {gpu: 2}}], containers: [{limits: {" + cpus2 +
				", example.com/nic: 2}, claims: [a]}]"}, "none+devices-by-id", false},
	} {
		got, err := Run(t.Context(), s, policies(t, test.policy)[0], pairsBy(t, s, test.pods...), Options{})
		if err != nil {
			t.Fatal(err)
		}
		p := got.Placement
		t.Logf("%s: %d of %d pairs", test.name, p.SwitchPairs, p.Pairs)
		if p.Pairs < 300 || test.all != (p.SwitchPairs == p.Pairs) {
			t.Errorf("%s: %d of %d pairs are under one switch", test.name, p.SwitchPairs, p.Pairs)
		}
	}
}

// What Run counts of claims is what its decisions add up to.
func TestOutcomeOfClaims(t *testing.T) {
	for _, machine := range []string{"dgx-h100", "playground"} {
		s := site(t, machine)
		stream := pairsBy(t, s, "claims: [{name: a, devices: {gpu: 1}}, {name: b, devices: {gpu: 1, nic: 1}, "+
			"match: numaNode}], initContainers: [{limits: {cpu: 1, memory: 1Gi}, claims: [a]}], "+
			"containers: [{limits: {cpu: 4, memory: 8Gi}, claims: [a, b]}, {limits: {cpu: 1, memory: 1Gi}, claims: [b]}]",
			"claims: [{name: a, devices: {gpu: 2}}], containers: [{limits: {cpu: 50%, memory: 8Gi}, claims: [a]}]")
		stream.Arrivals = stream.Arrivals[:150]
		for i, p := range policies(t, "none/single-numa-node+container/pod,cpu-none,restricted+memory-static") {
			check(t, recount{site: s, policy: p, stream: stream}, time.Duration(i%2)*time.Hour)
		}
	}
}

// The scheduler chooses without the node; CPUs go beside its devices, or the pod has no place.
func TestClaimStory(t *testing.T) {
	const trace = `{"template": "t", "claims": [{"name": "x", "devices": {"gpu": 1}}], ` +
		`"containers": [{"limits": {"cpu": 2, "memory": "1Gi"}, "claims": ["x"]}]}
{"at": 0, "arrive": "a", "template": "t"}
{"at": 1, "arrive": "b", "template": "t", "lifetime": 5}
{"at": 2, "arrive": "c", "template": "t"}
{"at": 3, "arrive": "d", "containers": [{"limits": {"cpu": 1, "memory": "1Gi"}}]}
{"at": 3, "depart": "a"}
{"at": 4, "arrive": "e", "claims": [{"name": "x", "devices": {"gpu": 1}}], ` +
		`"containers": [{"limits": {"cpu": 3, "memory": "1Gi"}, "claims": ["x"]}]}
{"at": 5, "arrive": "f", "claims": [{"name": "x", "devices": {"gpu": 1}}], ` +
		`"manifest": {"spec": {"resourceClaims": [{"name": "x", "resourceClaimTemplateName": "t"}], ` +
		`"containers": [{"name": "m", "resources": {"claims": [{"name": "x", "request": "gpu"}]}}]}}}`
	const want = `0s pod 1 admitted cpus 4-5 claims gpu-0
1s pod 2 admitted cpus 6-7 claims gpu-1
2s pod 3 rejected: Unschedulable example.com/gpu
3s pod 1 left cpus 4-5 claims gpu-0
3s pod 4 admitted cpus 1
4s pod 5 rejected: TopologyAffinityError cpu
5s pod 6 admitted claims gpu-0`
	if got := story(t, "single-numa-node", trace, 0); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A claim that breaks a rule ends the run, and what is counted as claimed is what pods have.
func TestBrokenClaims(t *testing.T) {
	s := site(t, "dgx-h100")
	shape, err := s.shape("a", PodSpec{
		Claims:     []ClaimSpec{{Name: "x", Devices: map[string]Text{"gpu": "2"}, Match: "numaNode"}},
		Containers: []ContainerSpec{{Claims: []string{"x"}}}})
	if err != nil {
		t.Fatal(err)
	}
	gpus := publishedBy(s)["nvidia.com/gpu"]
	of := func(devices ...claim.Device) allocation.Claims {
		return allocation.Claims{{Name: "x", UID: "x", Devices: devices}}
	}
	invented := gpus[0]
	invented.Name = "invented"
	for name, test := range map[string]struct {
		claims allocation.Claims
		want   string
	}{
		"good":            {of(gpus[1], gpus[2]), ""},
		"taken":           {of(gpus[0], gpus[1]), "taken or not there"},
		"twice":           {of(gpus[1], gpus[1]), "taken or not there"},
		"not there":       {of(invented, gpus[1]), "taken or not there"},
		"too few":         {of(gpus[1]), "1 of nvidia.com/gpu less"},
		"too many":        {of(gpus[1], gpus[2], gpus[3]), "-1 of nvidia.com/gpu less"},
		"others":          {of(gpus[1], gpus[7]), "another numaNode"},
		"none":            {nil, "0 claims and uses 1"},
		"of another name": {allocation.Claims{{Name: "y"}}, "which the pod does not have"},
	} {
		w, err := newWorld(s, policies(t, "none")[0])
		if err != nil {
			t.Fatal(err)
		}
		w.claimed.Insert(keyOf(gpus[0]))
		err = w.admit(1, newLots([]Shape{shape}, w.room.View)[0], allocation.Plan{Pod: allocation.Pod{
			Containers: map[string]allocation.Container{"main-0": {test.claims}}}})
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
		if err == nil {
			if err := w.check(); err == nil || !strings.Contains(err.Error(), "claims of pods have") {
				t.Errorf("a device too many is counted: %v", err)
			}
		}
	}
}

// Claims that cannot be are refused with what has to be written, and good ones survive a trace.
func TestClaimSpecs(t *testing.T) {
	s := site(t, "dgx-h100")
	of := func(claims, uses string) string {
		return `{"template": "t", "claims": [` + claims + `], "containers": [{"claims": [` + uses + "]}]}\n" +
			`{"at": 0, "arrive": "a", "template": "t"}` + "\n"
	}
	for _, test := range []struct{ trace, want string }{
		{of(`{"name": "x", "devices": {"gpu": 1, "nic": "100%"}, "match": "numaNode"}`, `"x"`), ""},
		{of(`{"devices": {"gpu": 1}}`, ``), `claims[0]: name "" is empty`},
		{of(`{"name": "x", "devices": {"gpu": 1}}, {"name": "x", "devices": {"gpu": 1}}`, ``), "there twice"},
		{of(`{"name": "x"}`, ``), "claim x: 0 devices; a claim has 1 to 32"},
		{of(`{"name": "x", "devices": {"gpu": 33}}`, ``), "33 devices"},
		{of(`{"name": "x", "devices": {"gpu": 0}}`, ``), "0 of nvidia.com/gpu; a claim has devices"},
		{of(`{"name": "x", "devices": {"cpu": 4}}`, ``), "4 of cpu; a claim has devices"},
		{of(`{"name": "x", "devices": {"gpu": "a"}}`, ``), `"a" is no amount`},
		{of(`{"name": "x", "devices": {"gpu": 1}, "match": "switch"}`, ``),
			`match "switch" is none of numaNode, pcieRoot`},
		{of(`{"name": "x", "devices": {"gpu": 1}}`, `"y"`), `container main-0 uses claim "y"`},
		{of(`{"name": "x", "devices": {"gpu": 1}}`, `"x"`) +
			`{"at": 1, "arrive": "b", "containers": [{"limits": {"gpu": 1}}]}`,
			"t asks for nvidia.com/gpu by a claim, and nvidia.com/gpu 1 in limits"},
		{`{"at": 0, "arrive": "a", "manifest": {"spec": {"resourceClaims": [{"name": "z"}], ` +
			`"containers": [{"name": "m"}]}}}`, "nothing says which devices its claim z has"},
	} {
		stream, err := s.ReadTrace(strings.NewReader(test.trace))
		if test.want != "" {
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v, want %q", test.trace, err, test.want)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		var again, twice bytes.Buffer
		if err := WriteTrace(&again, stream); err != nil {
			t.Fatal(err)
		}
		read, err := s.ReadTrace(bytes.NewReader(again.Bytes()))
		if err == nil {
			err = WriteTrace(&twice, read)
		}
		if err != nil || twice.String() != again.String() || !strings.Contains(again.String(),
			`"claims":[{"name":"x","devices":{"example.com/nic":"4","nvidia.com/gpu":"1"},"match":"numaNode"}]`) {
			t.Errorf("%v: %s, and then %s", err, again.String(), twice.String())
		}
	}
	mix := strings.Replace(pairsMix, "- name: two\n", "- name: two\n  claims: [{name: a, devices: {gpu: 1}}]\n", 1)
	if m, err := ParseMix([]byte(mix)); err != nil {
		t.Error(err)
	} else if _, err := s.Generate(m, Draw{Pods: 1}); err == nil || !strings.Contains(err.Error(), "by a claim") {
		t.Errorf("a mix that asks for GPUs both ways: %v", err)
	}
}

// theirs is Kubernetes' own scheduler of claims, for the devices and claims of a site.
type theirs struct {
	cache  *cel.Cache
	slices []*resourcev1.ResourceSlice
}

func (theirs) List() ([]*resourcev1.DeviceClass, error) { return nil, nil }

func (theirs) Get(name string) (*resourcev1.DeviceClass, error) {
	return &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
			Expression: fmt.Sprintf("device.driver == %q", name)}}}}}, nil
}

// driverOf makes the name of a driver of a class.
func driverOf(class string) string { return strings.ReplaceAll(class, "/", ".") }

func theirsOf(s *Site) theirs {
	out := theirs{cache: cel.NewCache(10, cel.Features{})}
	for class, devices := range publishedBy(s) {
		slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: driverOf(class)},
			Spec: resourcev1.ResourceSliceSpec{Driver: driverOf(class), NodeName: new("node"),
				Pool: resourcev1.ResourcePool{Name: "node", Generation: 1, ResourceSliceCount: 1}}}
		for i, d := range devices {
			one := resourcev1.Device{Name: fmt.Sprint("d-", i),
				Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}}
			for match, of := range attributes {
				if is := of(d.Place); is != "" {
					one.Attributes[resourcev1.QualifiedName("x.com/"+match)] =
						resourcev1.DeviceAttribute{StringValue: &is}
				}
			}
			slice.Spec.Devices = append(slice.Spec.Devices, one)
		}
		out.slices = append(out.slices, slice)
	}
	return out
}

// choose returns the indexes of the devices that the claims get, in the order of picksOf.
func (o theirs) choose(t *testing.T, taken sets.Set[structured.DeviceID], specs []ClaimSpec) (out []string) {
	t.Helper()
	var claims []*resourcev1.ResourceClaim
	for _, spec := range specs {
		c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: spec.Name, Namespace: "default",
			UID: types.UID(spec.Name)}}
		for _, class := range slices.Sorted(maps.Keys(spec.counts())) {
			c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, resourcev1.DeviceRequest{
				Name: shortName(class), Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: driverOf(class),
					AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: spec.counts()[class]}})
		}
		if spec.Match != "" {
			c.Spec.Devices.Constraints = []resourcev1.DeviceConstraint{{
				MatchAttribute: new(resourcev1.FullyQualifiedName("x.com/" + spec.Match))}}
		}
		claims = append(claims, c)
	}
	allocator, err := structured.NewAllocator(t.Context(), structured.Features{}, structured.AllocatedState{
		AllocatedDevices: taken, AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection()}, o, o.slices, o.cache)
	if err != nil {
		t.Fatal(err)
	}
	got, err := allocator.Allocate(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}, claims)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range got {
		for _, r := range one.Devices.Results {
			out = append(out, r.Driver+" "+strings.TrimPrefix(r.Device, "d-"))
		}
	}
	return out
}

// The scheduler chooses what Kubernetes' own chooses.
func TestSchedulerIsKubernetes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, machine := range []string{"dgx-h100", "playground"} {
		s := site(t, machine)
		other, found := theirsOf(s), 0
		for range 400 {
			specs := randomClaims(random)
			taken, theirTaken := sets.New[deviceKey](), sets.New[structured.DeviceID]()
			for class, devices := range publishedBy(s) {
				for i, d := range devices {
					if random.IntN(3) == 0 {
						taken.Insert(keyOf(d))
						theirTaken.Insert(structured.MakeDeviceID(driverOf(class), "node", fmt.Sprint("d-", i)))
					}
				}
			}
			ours := scheduler{devices: publishedBy(s), taken: taken, picks: picksOf(specs)}
			var got []string
			if ours.short() == "" && ours.choose(sets.New[deviceKey]()) {
				for i, p := range ours.picks {
					got = append(got, fmt.Sprint(driverOf(p.class), " ", ours.chosen[i]))
				}
				found++
			}
			if want := other.choose(t, theirTaken, specs); !slices.Equal(got, want) {
				t.Fatalf("%s: %+v beside %v\ngot  %v\nwant %v", machine, specs, sets.List(keys(taken)), got, want)
			}
		}
		if found < 100 || found > 350 {
			t.Errorf("%s: %d of 400 found", machine, found)
		}
	}
}

func keys(of sets.Set[deviceKey]) sets.Set[string] {
	out := sets.New[string]()
	for key := range of {
		out.Insert(fmt.Sprint(key))
	}
	return out
}

func randomClaims(random *rand.Rand) (out []ClaimSpec) {
	for i := range 1 + random.IntN(3) {
		spec := ClaimSpec{Name: fmt.Sprint("c", i), Devices: map[string]Text{},
			Match: []string{"", "pcieRoot", "numaNode"}[random.IntN(3)]}
		if n := random.IntN(3); n > 0 {
			spec.Devices["example.com/nic"] = Text(fmt.Sprint(n))
		}
		if n := random.IntN(3); n > 0 || len(spec.Devices) == 0 {
			spec.Devices["nvidia.com/gpu"] = Text(fmt.Sprint(max(1, n)))
		}
		out = append(out, spec)
	}
	return out
}
