package allocation

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// choosing has the pod's scheduler choose devices: "main=gpu-0,gpu-1".
func choosing(v *View, pod *v1.Pod, choices ...string) *v1.Pod {
	pod.Spec.SchedulerName, pod.Annotations = "chooser", map[string]string{}
	for _, text := range choices {
		container, ids, _ := strings.Cut(text, "=")
		pod.Annotations["example.com/gpu_container-"+container] = ids
	}
	v.Chosen, _ = podspec.ChosenDevices(pod, topology.Choosers{{Scheduler: "chooser"}})
	return pod
}

// placed is a plan in words: "main: gpu-0 on CPUs 1-2".
func placed(plan Plan, err error) string {
	if err != nil {
		return err.Error()
	}
	var out []string
	for name, c := range plan.Pod.Containers {
		d, _ := c.device("example.com/gpu")
		out = append(out, fmt.Sprintf("%s: %s on CPUs %s", name, strings.Join(d.IDs, ","), c.CPUs()))
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

// A container gets the devices that were chosen for it, its CPUs are where they are, and a policy that
// does not allow that says so.
func TestChosenDevices(t *testing.T) {
	for _, scope := range []topology.Scope{topology.ContainerScope, topology.PodScope} {
		for _, test := range []struct {
			policies string
			choice   string
			want     string
		}{
			{"best-effort restricted single-numa-node", "gpu-3,gpu-2", "main: gpu-2,gpu-3 on CPUs 4,12"},
			{"none", "gpu-3,gpu-2", "main: gpu-2,gpu-3 on CPUs 1,9"},
			{"none best-effort", "gpu-0,gpu-2", "main: gpu-0,gpu-2 on CPUs 1,9"},
			{"restricted single-numa-node", "gpu-0,gpu-2", "TopologyAffinityError: Resources cannot be " +
				"allocated with Topology locality: annotation example.com/gpu_container-main chooses " +
				"devices of NUMA nodes 0-1; choose devices with which the pod has a place that the policy " +
				"allows"},
		} {
			for policy := range strings.FieldsSeq(test.policies) {
				v := rig(t, topology.Policy(policy), scope)
				r := v.Inventory.Resources["example.com/gpu"]
				r.Options.Preferred = true // and is not asked
				v.Inventory.Resources["example.com/gpu"] = r
				pod := choosing(&v, podOfContainers("main cpu=2 gpu=2"), "main="+test.choice)
				plan, err := v.Plan(pod, nil)
				if got := placed(plan, err); got != test.want || plan.Ask != nil {
					t.Errorf("%s, scope %s, %s: %s, asks %v; want %s", policy, scope, test.choice, got,
						plan.Ask, test.want)
				}
			}
		}
	}
}

// In pod scope all is where the chosen devices are, also what was not chosen.
func TestChosenForOneContainerOfTheScope(t *testing.T) {
	v := rig(t, topology.SingleNUMANode, topology.PodScope)
	pod := choosing(&v, podOfContainers("a cpu=2 gpu=1", "b cpu=2 gpu=1"), "b=gpu-3")
	if got := placed(v.Plan(pod, nil)); got !=
		"a: gpu-2 on CPUs 4,12; b: gpu-3 on CPUs 5,13" {
		t.Error(got)
	}
	pod = choosing(&v, podOfContainers("a cpu=2 gpu=1", "b cpu=2 gpu=1"), "a=gpu-0", "b=gpu-3")
	if got := placed(v.Plan(pod, nil)); !strings.Contains(got, "annotation "+
		"example.com/gpu_container-a chooses devices of NUMA nodes 0, annotation "+
		"example.com/gpu_container-b chooses devices of NUMA nodes 1;") {
		t.Error(got)
	}
}

// A device that is not to be had is told of by its annotation, and others are not given in its place.
func TestChosenDeviceThatIsNotToBeHad(t *testing.T) {
	const annotation = "ChosenDeviceUnavailable: annotation example.com/gpu_container-main chooses device "
	for _, test := range []struct {
		choice string
		change func(*View, *devicemanager.Device)
		want   string
	}{
		{"gpu-9", nil, `"gpu-9", and its device plugin lists none of that id; choose one that the ` +
			`plugin lists`},
		{"gpu-2", func(_ *View, d *devicemanager.Device) { d.Healthy = false },
			`"gpu-2", and it is not healthy; choose another one, or wait until it is`},
		{"gpu-2", func(_ *View, d *devicemanager.Device) { d.Cordoned = true },
			`"gpu-2", and it is cordoned; choose another one, or uncordon it (numalet device uncordon)`},
		{"gpu-2", func(v *View, _ *devicemanager.Device) {
			v.Taken = v.Taken.With(DeviceIDs{"example.com/gpu": sets.New("gpu-2")})
		}, `"gpu-2", and another pod has it; choose one that is free`},
	} {
		for _, policy := range []topology.Policy{topology.None, topology.SingleNUMANode} {
			v := rig(t, policy, topology.ContainerScope)
			if test.change != nil {
				test.change(&v, v.Inventory.Resources["example.com/gpu"].Devices[2])
			}
			pod := choosing(&v, podOfContainers("main cpu=2 gpu=1"), "main="+test.choice)
			if got := placed(v.Plan(pod, nil)); got != annotation+test.want {
				t.Errorf("%s: %s\nwant %s", policy, got, annotation+test.want)
			}
		}
	}
}

// Containers beside one of a choice do not get its devices, whichever starts first; an init container
// may have them before, and they may be chosen for both.
func TestChosenDevicesAreKeptForTheirContainer(t *testing.T) {
	for _, test := range []struct {
		containers, choices []string
		want                string
	}{
		{[]string{"a cpu=1 gpu=1", "main cpu=1 gpu=2"}, []string{"main=gpu-0,gpu-1"},
			"a: gpu-2 on CPUs 4; main: gpu-0,gpu-1 on CPUs 8"},
		{[]string{"side~ cpu=1 gpu=1", "main cpu=1 gpu=2"}, []string{"main=gpu-0,gpu-1"},
			"main: gpu-0,gpu-1 on CPUs 8; side: gpu-2 on CPUs 4"},
		{[]string{"init! cpu=1 gpu=1", "main cpu=1 gpu=2"}, []string{"main=gpu-0,gpu-1"},
			"init: gpu-0 on CPUs 8; main: gpu-0,gpu-1 on CPUs 8"},
		{[]string{"init! cpu=1 gpu=1", "main cpu=1 gpu=2"}, []string{"init=gpu-3", "main=gpu-2,gpu-3"},
			"init: gpu-3 on CPUs 4; main: gpu-2,gpu-3 on CPUs 4"},
		{[]string{"init! cpu=1 gpu=1", "main cpu=1 gpu=1"}, []string{"init=gpu-3"},
			"init: gpu-3 on CPUs 4; main: gpu-3 on CPUs 4"},
	} {
		v := rig(t, topology.SingleNUMANode, topology.ContainerScope)
		for _, keep := range []Keeping{KeepParts, KeepWhole} {
			v.Keep = keep
			pod := choosing(&v, podOfContainers(test.containers...), test.choices...)
			if got := placed(v.Plan(pod, nil)); got != test.want {
				t.Errorf("%q, %q: %s, want %s", test.containers, test.choices, got, test.want)
			}
		}
	}
}

// What a pod was admitted with counts, whatever is chosen for it since; what it has lost of that is
// chosen anew.
func TestChoiceAfterAdmission(t *testing.T) {
	v := rig(t, topology.SingleNUMANode, topology.ContainerScope)
	pod := choosing(&v, podOfContainers("main cpu=2 gpu=1"), "main=gpu-0")
	plan, err := v.Plan(pod, nil)
	if err != nil {
		t.Fatal(err)
	}
	v.Own = plan.Pod
	pod = choosing(&v, pod, "main=gpu-3")
	for _, keep := range []Keeping{KeepParts, KeepAll} {
		v.Keep = keep
		if got := placed(v.Plan(pod, nil)); got != "main: gpu-0 on CPUs 1,9" {
			t.Error(keep, got)
		}
	}
	v.Keep = KeepParts
	v.Inventory.Resources["example.com/gpu"].Devices[0].Healthy = false
	if got := placed(v.Plan(pod, nil)); got != "main: gpu-3 on CPUs 4,12" {
		t.Error(got)
	}
}

// Devices of no node say nothing of where the rest goes.
func TestChosenDeviceWithoutANode(t *testing.T) {
	v := rig(t, topology.SingleNUMANode, topology.ContainerScope)
	v.Inventory.Resources["example.com/gpu"].Devices[1].Nodes = topology.NodeSet{}
	for choice, want := range map[string]string{
		"gpu-1":       "main: gpu-1 on CPUs 1,9",
		"gpu-1,gpu-2": "main: gpu-1,gpu-2 on CPUs 4,12",
	} {
		n := len(strings.Split(choice, ","))
		pod := choosing(&v, podOfContainers(fmt.Sprint("main cpu=2 gpu=", n)), "main="+choice)
		if got := placed(v.Plan(pod, nil)); got != want {
			t.Errorf("%s: %s, want %s", choice, got, want)
		}
	}
}
