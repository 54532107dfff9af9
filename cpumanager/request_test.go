package cpumanager_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
)

func TestExclusive(t *testing.T) {
	for _, c := range []struct {
		name       string
		containers string // in lines of podtest, with ", " between them
		want       int
	}{
		{"whole", "c cpu=2 memory=1Gi", 2},
		{"whole in millicores", "c cpu=3000m memory=1Gi", 3},
		{"fraction", "c cpu=1500m memory=1Gi", 0},
		{"less than a millicore too much", "c cpu=2000001u memory=1Gi", 0},
		{"burstable", "c cpu=2..3 memory=1Gi", 0},
		{"no limit", "c cpu=2.. memory=1Gi", 0},
		{"no memory", "c cpu=2", 0},
		{"best effort", "c", 0},
		{"beside a fraction", "c cpu=2 memory=1Gi, d cpu=500m memory=1Gi", 2},
		{"beside a burstable one", "c cpu=2 memory=1Gi, d cpu=1..2 memory=1Gi", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := podtest.New("", podtest.Containers(strings.Split(c.containers, ", ")...))
			if got := cpumanager.Exclusive(pod, &pod.Spec.Containers[0], topology.Rules{}); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
			// The same holds for an init container or sidecar.
			pod.Spec.InitContainers, pod.Spec.Containers = pod.Spec.Containers, nil
			podtest.Guaranteed("c cpu=1")(pod)
			if got := cpumanager.Exclusive(pod, &pod.Spec.InitContainers[0], topology.Rules{}); got != c.want {
				t.Errorf("as init container: got %d, want %d", got, c.want)
			}
		})
	}
}

func TestExclusiveIgnoresStatus(t *testing.T) {
	pod := podtest.New("", podtest.Guaranteed("c cpu=2"))
	pod.Status.QOSClass = v1.PodQOSBurstable
	if got := cpumanager.Exclusive(pod, &pod.Spec.Containers[0], topology.Rules{}); got != 2 {
		t.Errorf("got %d, want 2 from the spec alone", got)
	}
}

func TestExclusivePodLevelResources(t *testing.T) {
	pod := podtest.New("", podtest.Guaranteed("c cpu=2"), podtest.Resources("cpu=4 memory=1Gi"))
	if got := cpumanager.Exclusive(pod, &pod.Spec.Containers[0], topology.Rules{}); got != 0 {
		t.Errorf("got %d, want 0: the pod has pod-level resources", got)
	}
}

// TestPodLevelManagers: with the gate containers of pods with pod-level resources get what they qualify for
// in themselves, and in pod scope the pod gets a pool.
func TestPodLevelManagers(t *testing.T) {
	const own = "cpu=4 memory=4Gi"
	for name, test := range map[string]struct {
		resources, container string
		scope                topology.Scope
		policy               topology.Policy
		exclusive, whole     int
		shares               bool
	}{
		"container scope":   {own, "c cpu=2 memory=1Gi", topology.ContainerScope, topology.Restricted, 2, 2, true},
		"pod scope":         {own, "c cpu=2 memory=1Gi", topology.PodScope, topology.Restricted, 2, 4, false},
		"policy none":       {own, "c cpu=2 memory=1Gi", topology.PodScope, topology.None, 2, 2, true},
		"burstable itself":  {own, "c cpu=2", topology.PodScope, topology.Restricted, 0, 4, false},
		"a fraction itself": {own, "c cpu=2500m memory=1Gi", topology.PodScope, topology.Restricted, 0, 4, false},
		"a fraction as a whole": {"cpu=3500m memory=4Gi", "c cpu=2 memory=1Gi", topology.PodScope,
			topology.Restricted, 0, 0, true},
		"burstable as a whole": {"cpu=2..4 memory=4Gi", "c cpu=2 memory=1Gi", topology.ContainerScope,
			topology.Restricted, 0, 0, true},
	} {
		pod := podtest.New("", podtest.Containers(test.container, "d"), podtest.Resources(test.resources))
		rules := topology.Rules{PodLevel: true, Scope: test.scope, Policy: test.policy}
		c := &pod.Spec.Containers[0]
		if got := cpumanager.Exclusive(pod, c, rules); got != test.exclusive {
			t.Errorf("%s: the container gets %d, want %d", name, got, test.exclusive)
		}
		if got := cpumanager.PodExclusive(pod, rules); got != test.whole {
			t.Errorf("%s: the pod gets %d, want %d", name, got, test.whole)
		}
		if got := cpumanager.Shares(pod, rules); got != test.shares {
			t.Errorf("%s: it runs on shared CPUs: %t", name, got)
		}
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
		pod := podtest.New("")
		for _, cpu := range strings.Fields(c.init) {
			name := "init!"
			if strings.HasSuffix(cpu, "s") {
				name = "side~"
			}
			podtest.Guaranteed(name + " cpu=" + strings.TrimSuffix(cpu, "s"))(pod)
		}
		for _, cpu := range strings.Fields(c.containers) {
			podtest.Guaranteed("c cpu=" + cpu)(pod)
		}
		if got := cpumanager.PodExclusive(pod, topology.Rules{}); got != c.want {
			t.Errorf("init %q, containers %q: got %d, want %d", c.init, c.containers, got, c.want)
		}
	}
}

func TestShares(t *testing.T) {
	const own = "own cpu=2"
	for name, c := range map[string]struct {
		containers []string
		want       bool
	}{
		"all have their own":       {[]string{"init! cpu=2", own, own}, false},
		"a container shares":       {[]string{"init! cpu=2", own, "shares cpu=500m"}, true},
		"an init container shares": {[]string{"init! cpu=2", "shares! cpu=500m", own}, true},
		"a sidecar shares":         {[]string{"shares~ cpu=500m", own}, true},
	} {
		pod := podtest.New("", podtest.Guaranteed(c.containers...))
		if got := cpumanager.Shares(pod, topology.Rules{}); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
}
