package cpumanager_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/numalet/numalet/cpumanager"
)

// container returns a container that requests cpu and memory; cpuLimit may differ from the request.
func container(cpu, memory, cpuLimit string) v1.Container {
	list := func(cpu string) v1.ResourceList {
		out := v1.ResourceList{}
		if cpu != "" {
			out[v1.ResourceCPU] = resource.MustParse(cpu)
		}
		if memory != "" {
			out[v1.ResourceMemory] = resource.MustParse(memory)
		}
		return out
	}
	return v1.Container{
		Name:      "c",
		Resources: v1.ResourceRequirements{Requests: list(cpu), Limits: list(cpuLimit)},
	}
}

func guaranteed(cpu string) v1.Container { return container(cpu, "1Gi", cpu) }

func sidecar(c v1.Container) v1.Container {
	always := v1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}

func TestExclusive(t *testing.T) {
	for _, c := range []struct {
		name       string
		containers []v1.Container
		want       int
	}{
		{"whole", []v1.Container{guaranteed("2")}, 2},
		{"whole in millicores", []v1.Container{guaranteed("3000m")}, 3},
		{"fraction", []v1.Container{guaranteed("1500m")}, 0},
		{"less than a millicore too much", []v1.Container{guaranteed("2000001u")}, 0},
		{"burstable", []v1.Container{container("2", "1Gi", "3")}, 0},
		{"no limit", []v1.Container{container("2", "1Gi", "")}, 0},
		{"no memory", []v1.Container{container("2", "", "2")}, 0},
		{"best effort", []v1.Container{container("", "", "")}, 0},
		{"beside a fraction", []v1.Container{guaranteed("2"), guaranteed("500m")}, 2},
		{"beside a burstable one", []v1.Container{guaranteed("2"), container("1", "1Gi", "2")}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := &v1.Pod{Spec: v1.PodSpec{Containers: c.containers}}
			if got := cpumanager.Exclusive(pod, &pod.Spec.Containers[0]); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
			// The same holds for an init container or sidecar.
			pod.Spec.InitContainers, pod.Spec.Containers = c.containers,
				[]v1.Container{guaranteed("1")}
			if got := cpumanager.Exclusive(pod, &pod.Spec.InitContainers[0]); got != c.want {
				t.Errorf("as init container: got %d, want %d", got, c.want)
			}
		})
	}
}

func TestExclusiveIgnoresStatus(t *testing.T) {
	pod := &v1.Pod{
		Spec:   v1.PodSpec{Containers: []v1.Container{guaranteed("2")}},
		Status: v1.PodStatus{QOSClass: v1.PodQOSBurstable},
	}
	if got := cpumanager.Exclusive(pod, &pod.Spec.Containers[0]); got != 2 {
		t.Errorf("got %d, want 2 from the spec alone", got)
	}
}

func TestExclusivePodLevelResources(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{guaranteed("2")}}}
	level := guaranteed("4").Resources
	pod.Spec.Resources = &level
	if got := cpumanager.Exclusive(pod, &pod.Spec.Containers[0]); got != 0 {
		t.Errorf("got %d, want 0: the pod has pod-level resources", got)
	}
}

func TestPodExclusive(t *testing.T) {
	for _, c := range []struct {
		init, containers string // CPU counts; "s" marks sidecars
		want             int
	}{
		{"", "2 3", 5},
		{"", "500m 3", 3},
		{"4", "2 3", 5},
		{"8", "2 3", 8},
		{"8 6", "2 3", 8},
		{"1s", "2 3", 6},
		{"1s 6", "2 3", 7},
		{"6 1s", "2 3", 6},
		{"2s 1s 3 4s", "1", 8},
		{"2s 9 4s", "1", 11},
	} {
		pod := &v1.Pod{}
		for _, cpu := range strings.Fields(c.init) {
			if n, ok := strings.CutSuffix(cpu, "s"); ok {
				pod.Spec.InitContainers = append(pod.Spec.InitContainers, sidecar(guaranteed(n)))
			} else {
				pod.Spec.InitContainers = append(pod.Spec.InitContainers, guaranteed(cpu))
			}
		}
		for _, cpu := range strings.Fields(c.containers) {
			pod.Spec.Containers = append(pod.Spec.Containers, guaranteed(cpu))
		}
		if got := cpumanager.PodExclusive(pod); got != c.want {
			t.Errorf("init %q, containers %q: got %d, want %d", c.init, c.containers, got, c.want)
		}
	}
}

func TestShares(t *testing.T) {
	own, shared := guaranteed("2"), guaranteed("500m")
	for name, c := range map[string]struct {
		init, containers []v1.Container
		want             bool
	}{
		"all have their own":       {[]v1.Container{own}, []v1.Container{own, own}, false},
		"a container shares":       {[]v1.Container{own}, []v1.Container{own, shared}, true},
		"an init container shares": {[]v1.Container{own, shared}, []v1.Container{own}, true},
		"a sidecar shares":         {[]v1.Container{sidecar(shared)}, []v1.Container{own}, true},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{InitContainers: c.init, Containers: c.containers}}
		if got := cpumanager.Shares(pod); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
}
