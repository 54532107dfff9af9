package allocation

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// isolating is the rig with isolated CPUs, and with the rules of a pod.
func isolating(t *testing.T, v View, list string, rules topology.CPURules) View {
	t.Helper()
	cpus, err := cpuset.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	if v.CPUs, err = v.CPUs.Isolating(cpus); err != nil {
		t.Fatal(err)
	}
	v.CPURules = rules
	return v
}

var (
	isolated = topology.CPURules{Isolated: true}
	whole    = topology.CPURules{WholeCores: true}
)

func TestPlanIsolatedCPUs(t *testing.T) {
	for name, test := range map[string]struct {
		policy topology.Policy
		scope  topology.Scope
		rules  topology.CPURules
		taken  string
		strict bool
		texts  []string
		want   string
	}{
		"those who do not ask": {texts: []string{"main cpu=2"}, want: "main: cpus 1,9"},
		"those who ask": {
			rules: isolated, texts: []string{"main cpu=2"},
			want: "main: cpus 5,13",
		},
		"as many as a node has": {
			policy: topology.SingleNUMANode, rules: isolated, texts: []string{"main cpu=3"},
			want: "main: cpus 2-3,10",
		},
		"a container that shares": {
			rules: isolated, texts: []string{"main cpu=2", "log cpu=100m"},
			want: "log:; main: cpus 5,13",
		},
		"an init container's CPUs": {
			rules: isolated, texts: []string{"i! cpu=3", "main cpu=3"},
			want: "i: cpus 3,5,13; main: cpus 3,5,13",
		},
		"beside a GPU": {
			policy: topology.SingleNUMANode, rules: isolated, taken: "2-3,10",
			texts: []string{"main cpu=2 gpu=1"}, want: "main: cpus 5,13 gpu-2",
		},
		"on both nodes, which an isolated machine would need": {
			policy: topology.Restricted, rules: isolated, texts: []string{"main cpu=5"},
			want: "main: cpus 2-3,5,10,13",
		},
		"as a pod": {
			policy: topology.SingleNUMANode, scope: topology.PodScope, rules: isolated,
			texts: []string{"a cpu=1", "b cpu=2"}, want: "a: cpus 3; b: cpus 2,10",
		},
		"more than are left": {
			rules: isolated, taken: "2,10", texts: []string{"main cpu=4"},
			want: "OutOfIsolatedCPUs: not enough isolated cpus available to satisfy request: " +
				"requested=4, available=3; the node isolates 5 (2-3,5,10,13)",
		},
		"more than are left, restricted": {
			policy: topology.Restricted, rules: isolated, texts: []string{"main cpu=6"},
			want: "OutOfIsolatedCPUs: not enough isolated cpus available to satisfy request: " +
				"requested=6, available=5; the node isolates 5 (2-3,5,10,13)",
		},
		"all but the isolated ones": {
			texts: []string{"main cpu=11"},
			want: "UnexpectedAdmissionError: Allocate failed due to not enough cpus available to " +
				"satisfy request: requested=11, available=10, which is unexpected",
		},
		"what would share has nothing": {
			rules: isolated, strict: true, taken: "1,4,6-9,11-12,14-15",
			texts: []string{"main cpu=2", "log cpu=100m"},
			want: "UnexpectedAdmissionError: Allocate failed due to no cpu is left for containers " +
				`without cpus of their own: strict-cpu-reservation keeps them off the reserved cpus ` +
				`"0" and all others are exclusive; request fewer exclusive cpus or reserve fewer, ` +
				"which is unexpected",
		},
		"3 are padded to 4": {
			rules: whole, texts: []string{"main cpu=3"},
			want: "main: cpus 1,4,9,12",
		},
		"each container for itself": {
			rules: whole, texts: []string{"a cpu=1", "b cpu=1"}, want: "a: cpus 1,9; b: cpus 4,12",
		},
		"padded on one node": {
			policy: topology.SingleNUMANode, scope: topology.PodScope, rules: whole,
			texts: []string{"a cpu=1", "b cpu=3"}, want: "a: cpus 4,12; b: cpus 6-7,14-15",
		},
		"isolated and padded": {
			rules: topology.CPURules{Isolated: true, WholeCores: true},
			texts: []string{"main cpu=3"}, want: "main: cpus 2,5,10,13",
		},
	} {
		t.Run(name, func(t *testing.T) {
			scope := topology.ContainerScope
			if test.scope != "" {
				scope = test.scope
			}
			policy := topology.None
			if test.policy != "" {
				policy = test.policy
			}
			v := withOptions(t, rig(t, policy, scope),
				cpumanager.Options{StrictReservation: test.strict})
			v = isolating(t, v, "2-3,10,5,13", test.rules)
			taken, err := cpuset.Parse(test.taken)
			if err != nil {
				t.Fatal(err)
			}
			v.Taken = v.Taken.With(CPUs(taken))
			if got := story(v.Plan(podOfContainers(test.texts...), nil)); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// What a container holds that was padded stays as it is, though with what is free now it might be
// less; what is no whole core does not.
func TestPaddedCPUsAreKept(t *testing.T) {
	for own, want := range map[string]string{
		"1,4,9,12": "main: cpus 1,4,9,12", "1,4,9": "main: cpus 1,4,9,12",
	} {
		v := isolating(t, rig(t, topology.None, topology.ContainerScope), "2-3", whole)
		cpus, err := cpuset.Parse(own)
		if err != nil {
			t.Fatal(err)
		}
		v.Own = Pod{UID: "uid", Containers: map[string]Container{"main": {CPUs(cpus)}}}
		if got := story(v.Plan(podOfContainers("main cpu=3"), nil)); got != want {
			t.Errorf("with %s got %s, want %s", own, got, want)
		}
	}
}

func TestWhatIsCounted(t *testing.T) {
	v := isolating(t, rig(t, topology.None, topology.ContainerScope), "2-3,10", topology.CPURules{})
	room := Room{View: v, Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("15")}}
	if got := room.Counted()[v1.ResourceCPU]; got.Value() != 12 {
		t.Errorf("%s CPUs are counted", got.String())
	}
	asks := func(annotation string, containers ...string) string {
		pod := podOfContainers(containers...)
		pod.Annotations = map[string]string{annotation: "true"}
		q := Requests(v.CPUs, pod, topology.Rules{})[v1.ResourceCPU]
		return q.String()
	}
	for _, c := range []struct{ got, want string }{
		{asks("", "a cpu=3", "b cpu=500m"), "3500m"},
		{asks(podspec.AnnotationIsolated, "a cpu=3", "b cpu=500m"), "500m"},
		{asks(podspec.AnnotationIsolated, "i! cpu=700m", "a cpu=3", "b cpu=500m"), "700m"},
		{asks(podspec.AnnotationWholeCores, "a cpu=3", "b cpu=500m"), "4500m"},
	} {
		if c.got != c.want {
			t.Errorf("counted are %s, want %s", c.got, c.want)
		}
	}
}
