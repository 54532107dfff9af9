package cluster_test

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/test/cluster/rig"
	containerdrig "github.com/numalet/numalet/test/containerd/rig"
	"github.com/numalet/numalet/test/harness"
)

// amountGates are the feature gates of claims that bring CPUs and memory, and of devices that need no
// driver on the node.
var amountGates = []string{"DRANodeAllocatableResources", "DRAOptionalNodeOperations"}

// TestAmountsByClaim: CPUs and memory that resource claims bring count under numalet as under the
// stock kubelet, with the real scheduler, containerd and runc: for limits, weights and OOM scores as
// containers see them, for the cgroups of pods and of QoS classes, and in statuses.
func TestAmountsByClaim(t *testing.T) {
	containerdrig.Require(t)
	containerdrig.Alone(t)
	compareAmounts(t, amountPods)
}

// compareAmounts runs the pods under both agents until they have reached the same states.
func compareAmounts(t *testing.T, bringing func() []bringing) (ours, theirs *inside) {
	t.Helper()
	c, on := rig.Gated(t, amountGates...), map[string]bool{}
	for _, gate := range amountGates {
		on[gate] = true
	}
	var sides []*inside
	for _, agent := range agents {
		s := newInsideOf(t, c.Another(), agent, map[string]any{"featureGates": on})
		s.bring(t, bringing())
		sides = append(sides, s)
	}
	var pods []*v1.Pod
	for _, one := range bringing() {
		pods = append(pods, one.pod)
	}
	made := makeAll(t, []*side{sides[0].side, sides[1].side}, pods)
	if len(made) < len(pods) {
		t.Errorf("the API server takes %d of %d pods", len(made), len(pods))
	}
	awaitAlike(t, sides, made)
	for _, pod := range made {
		if err := sides[0].brought(t, pod.Name); err != nil {
			t.Error(err)
		}
	}
	harness.Eventually(t, "the cgroups of QoS classes are alike", func() error {
		return errors.Join(asErrors(differences("kubepods", asAny(sides[0].classes(t)),
			asAny(sides[1].classes(t))))...)
	})
	return sides[0], sides[1]
}

// bringing is a pod, and what its claims bring, by the claim's name in its spec.
type bringing struct {
	pod    *v1.Pod
	claims map[string]amounts
}

// amounts are what a device brings: what it maps to, and what it costs each pod and each container.
type amounts struct{ mapping, perPod, perContainer string }

const amountsDriver = "amounts.example.com"

// bring publishes a device for each claim, and makes the claims of the pods.
func (s *inside) bring(t *testing.T, pods []bringing) {
	t.Helper()
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: s.Name + "-" + amountsDriver},
		Spec: resourcev1.ResourceSliceSpec{Driver: amountsDriver, NodeName: &s.Name,
			Pool:               resourcev1.ResourcePool{Name: s.Name, Generation: 1, ResourceSliceCount: 1},
			SkipNodeOperations: []resourcev1.SkipNodeOperation{resourcev1.SkipNodeOperationAll}}}
	api := s.Client.ResourceV1()
	for _, one := range pods {
		for _, claim := range slices.Sorted(maps.Keys(one.claims)) {
			brings := one.claims[claim]
			name := one.pod.Name + "-" + claim
			slice.Spec.Devices = append(slice.Spec.Devices, brings.device(name))
			made := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
			made.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "one",
				Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: amountsDriver,
					Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
						Expression: fmt.Sprintf("device.attributes[%q].of == %q", amountsDriver, name)}}}}}}
			if _, err := api.ResourceClaims(s.Namespace).Create(t.Context(), made,
				metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: amountsDriver}}
	class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
		Expression: fmt.Sprintf("device.driver == %q", amountsDriver)}}}
	_, _ = api.DeviceClasses().Create(t.Context(), class, metav1.CreateOptions{}) // of both nodes
	// An agent that has just started removes the slices of its node once.
	harness.Eventually(t, "the devices stay published", func() error {
		_, err := api.ResourceSlices().Create(t.Context(), slice, metav1.CreateOptions{})
		if err == nil {
			time.Sleep(2 * time.Second)
		}
		_, err = api.ResourceSlices().Get(t.Context(), slice.Name, metav1.GetOptions{})
		return err
	})
}

func (a amounts) device(name string) resourcev1.Device {
	out := resourcev1.Device{Name: name, NodeAllocatableResources: map[v1.ResourceName]resourcev1.NodeAllocatableResource{},
		Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"of": {StringValue: &name}}}
	of := func(name v1.ResourceName, set func(*resourcev1.NodeAllocatableResource)) {
		one := out.NodeAllocatableResources[name]
		set(&one)
		out.NodeAllocatableResources[name] = one
	}
	for name, q := range podtest.Amounts(a.mapping) {
		of(name, func(r *resourcev1.NodeAllocatableResource) {
			r.Mapping = &resourcev1.NodeAllocatableMapping{DeviceMultiplier: &q}
		})
	}
	for name, q := range podtest.Amounts(a.perPod) {
		of(name, func(r *resourcev1.NodeAllocatableResource) {
			r.Overhead = &resourcev1.NodeAllocatableOverhead{PerPod: &q}
		})
	}
	for name, q := range podtest.Amounts(a.perContainer) {
		of(name, func(r *resourcev1.NodeAllocatableResource) {
			if r.Overhead == nil {
				r.Overhead = &resourcev1.NodeAllocatableOverhead{}
			}
			r.Overhead.PerContainer = &q
		})
	}
	return out
}

// brought returns an error if the scheduler did not write what the pod's claims bring: the comparison
// would then say nothing.
func (s *inside) brought(t *testing.T, name string) error {
	t.Helper()
	pod, err := s.Client.CoreV1().Pods(s.Namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err == nil && len(pod.Status.NodeAllocatableResourceClaimStatuses) != len(pod.Spec.ResourceClaims) {
		err = fmt.Errorf("pod %s: its status has what %d of %d claims bring", name,
			len(pod.Status.NodeAllocatableResourceClaimStatuses), len(pod.Spec.ResourceClaims))
	}
	return err
}

// classes returns the values of the cgroups of QoS classes and of all pods together. The kubelet takes
// the node's limit of huge pages for all pods back again, which numalet does not.
func (s *inside) classes(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, class := range []string{"", "burstable", "besteffort"} {
		maps.Copy(out, s.valuesOf(t, filepath.Join("kubepods", class)))
	}
	maps.DeleteFunc(out, func(at, _ string) bool { return strings.Contains(at, "/kubepods/hugetlb.") })
	return out
}

func asAny(values map[string]string) any {
	out := map[string]any{}
	for at, value := range values {
		out[at] = value
	}
	return out
}

func asErrors(texts []string) (out []error) {
	for _, text := range texts {
		out = append(out, errors.New(text))
	}
	return out
}

// amountPods are pods with claims that bring CPUs and memory.
func amountPods() []bringing {
	usual := amounts{mapping: "cpu=30m memory=32Mi"}
	costs := amounts{perPod: "cpu=11m memory=8Mi", perContainer: "cpu=13m memory=4Mi"}
	all := amounts{"cpu=20m memory=16Mi", "cpu=7m memory=6Mi", "cpu=5m memory=3Mi"}
	limits := "cpu=40m memory=64Mi"
	out := []bringing{
		amountPod("guaranteed", one(usual), "main "+limits+" x"),
		amountPod("best-effort", one(usual), "main x"),
		amountPod("one-limit", one(amounts{mapping: "memory=24Mi"}), "main cpu=40m x"),
		amountPod("cpus", one(amounts{mapping: "cpu=25m"}), "main "+limits+" x"),
		amountPod("shared", one(usual), "main "+limits+" x", "second x", "third "+limits),
		amountPod("unused", one(usual), "main "+limits),
		amountPod("costs", one(costs), "main "+limits+" x", "second memory=32Mi x", "third x"),
		amountPod("all", one(all), "main "+limits+" x", "second "+limits+" x"),
		amountPod("two-claims", map[string]amounts{"x": all, "y": usual}, "main "+limits+" x y",
			"second "+limits+" y"),
		amountPod("init", one(all), "main "+limits+" x"),
		amountPod("overhead", one(all), "main "+limits+" x"),
		amountPod("requests", one(all), "main x"),
		amountPod("of-pod", one(all), "main x", "second "+limits+" x"),
	}
	for _, one := range out {
		spec := &one.pod.Spec
		switch one.pod.Name {
		case "init":
			first, side := containerUsing("first cpu=10m memory=48Mi x"), containerUsing("side "+limits+" x")
			first.Image, side.RestartPolicy = doneImage, ptr.To(v1.ContainerRestartPolicyAlways)
			spec.InitContainers = []v1.Container{first, side}
		case "overhead":
			spec.RuntimeClassName = ptr.To(realHandler)
		case "requests":
			spec.Containers[0].Resources.Requests = podtest.Amounts("cpu=15m memory=20Mi")
			spec.Containers[0].Resources.Limits = podtest.Amounts("cpu=60m memory=80Mi")
		case "of-pod":
			spec.Resources = &v1.ResourceRequirements{Limits: podtest.Amounts("cpu=200m memory=256Mi"),
				Requests: podtest.Amounts("cpu=120m memory=192Mi")}
		}
	}
	return out
}

func one(brings amounts) map[string]amounts { return map[string]amounts{"x": brings} }

// amountPod returns a pod with containers as containerUsing reads them.
func amountPod(name string, claims map[string]amounts, containers ...string) bringing {
	pod := ordinaryPod(name)
	pod.Spec.Containers = nil
	for _, text := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, containerUsing(text))
	}
	for _, claim := range slices.Sorted(maps.Keys(claims)) {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, v1.PodResourceClaim{Name: claim,
			ResourceClaimName: ptr.To(name + "-" + claim)})
	}
	return bringing{pod, claims}
}

// containerUsing returns a container of a text such as "main cpu=40m x": its name, its limits, which are its
// requests, and the claims that it uses.
func containerUsing(text string) v1.Container {
	var plain []string
	var claims []v1.ResourceClaim
	for i, word := range strings.Fields(text) {
		if i > 0 && !strings.Contains(word, "=") {
			claims = append(claims, v1.ResourceClaim{Name: word})
			continue
		}
		plain = append(plain, word)
	}
	c := podtest.Container(strings.Join(plain, " "))
	c.Image, c.Resources.Claims = rootImage, claims
	return c
}
