package allocation

import (
	"testing"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology"
)

func TestWhollyExclusive(t *testing.T) {
	for name, test := range map[string]struct {
		containers, exclusive []string
		want                  bool
	}{
		"one":                           {[]string{"a cpu=2"}, []string{"a"}, true},
		"one that shares":               {[]string{"a cpu=1500m"}, nil, false},
		"one of two":                    {[]string{"a cpu=2", "b cpu=1500m"}, []string{"a"}, false},
		"an init container that shares": {[]string{"i! cpu=500m", "a cpu=2"}, []string{"a"}, true},
		"only the init container":       {[]string{"i! cpu=2", "a cpu=500m"}, []string{"i"}, false},
		"a sidecar that shares":         {[]string{"s~ cpu=500m", "a cpu=2"}, []string{"a"}, false},
		"a sidecar with CPUs of its own": {[]string{"s~ cpu=1", "a cpu=2"}, []string{"s", "a"},
			true},
		"nothing assigned, as for policy": {[]string{"a cpu=2"}, nil, false},
	} {
		held := Pod{Containers: map[string]Container{}}
		for i, c := range test.exclusive {
			held.Containers[c] = Container{CPUs(cpuset.New(i))}
		}
		if got := held.WhollyExclusive(podOfContainers(test.containers...)); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

// withOptions is the rig with options of the CPU policy.
func withOptions(t *testing.T, v View, o cpumanager.Options) View {
	t.Helper()
	static, err := cpumanager.NewStatic(v.Machine, cpuset.New(0), o)
	if err != nil {
		t.Fatal(err)
	}
	v.CPUs = static
	return v
}

func TestPlanWholeCores(t *testing.T) {
	const smt = "SMTAlignmentError: SMT Alignment Error: "
	for name, test := range map[string]struct {
		policy topology.Policy
		scope  topology.Scope
		own    Pod
		taken  string
		texts  []string
		want   string
	}{
		"whole cores": {texts: []string{"main cpu=2"}, want: "main: cpus 1,9"},
		"odd": {texts: []string{"main cpu=3"},
			want: smt +
				"requested 3 cpus not multiple cpus per core = 2; what would fit: 2 or 4 cpus"},
		"odd, which restricted would call a matter of topology": {
			policy: topology.Restricted, texts: []string{"main cpu=3"},
			want: smt +
				"requested 3 cpus not multiple cpus per core = 2; what would fit: 2 or 4 cpus"},
		"two odd ones are no even one": {
			policy: topology.SingleNUMANode, scope: topology.PodScope,
			texts: []string{"a cpu=3", "b cpu=1"},
			want: smt +
				"requested 3 cpus not multiple cpus per core = 2; what would fit: 2 or 4 cpus"},
		"odd one in a pod": {
			policy: topology.Restricted, scope: topology.PodScope,
			texts: []string{"a cpu=2", "b cpu=1"},
			want:  smt + "requested 1 cpus not multiple cpus per core = 2; what would fit: 2 cpus"},
		"cores in part": {
			policy: topology.BestEffort, taken: "1-3,6-7", texts: []string{"main cpu=6"},
			want: smt + "not enough free physical CPUs: available physical CPUs = 4, " +
				"requested CPUs = 6, CPUs per core = 2; what would fit now: 4 cpus"},
		"cores in part, restricted": {
			policy: topology.Restricted, taken: "1-3,6-7", texts: []string{"main cpu=6"},
			want: smt + "not enough free physical CPUs: available physical CPUs = 4, " +
				"requested CPUs = 6, CPUs per core = 2; what would fit now: 4 cpus"},
		"too few CPUs at all are a matter of topology": {
			policy: topology.Restricted, taken: "1-7", texts: []string{"main cpu=10"},
			want: "TopologyAffinityError: Resources cannot be allocated with Topology locality"},
		"what a pod holds it keeps": {
			own:   Pod{UID: "uid", Containers: map[string]Container{"main": {CPUs(cpuset.New(1))}}},
			texts: []string{"main cpu=1"}, want: "main: cpus 1"},
	} {
		t.Run(name, func(t *testing.T) {
			v := rig(t, test.policy, test.scope)
			v = withOptions(t, v, cpumanager.Options{FullPCPUsOnly: true})
			taken, err := cpuset.Parse(test.taken)
			if err != nil {
				t.Fatal(err)
			}
			v.Taken, v.Own = v.Taken.With(CPUs(taken)), test.own
			if got := story(v.Plan(podOfContainers(test.texts...), nil)); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestPlanLeavesCPUsToShare(t *testing.T) {
	const none = "UnexpectedAdmissionError: Allocate failed due to no cpu is left for containers " +
		`without cpus of their own: strict-cpu-reservation keeps them off the reserved cpus "0" ` +
		"and all others are exclusive; request fewer exclusive cpus or reserve fewer, which is " +
		"unexpected"
	for name, test := range map[string]struct {
		options cpumanager.Options
		sharing bool
		taken   string
		texts   []string
		want    string
	}{
		"not strict: the reserved ones are shared": {
			sharing: true, texts: []string{"main cpu=15"}, want: "main: cpus 1-15"},
		"nobody shares": {options: cpumanager.Options{StrictReservation: true},
			texts: []string{"main cpu=15"}, want: "main: cpus 1-15"},
		"another pod shares": {options: cpumanager.Options{StrictReservation: true}, sharing: true,
			texts: []string{"main cpu=15"}, want: none},
		"a container of the pod shares": {options: cpumanager.Options{StrictReservation: true},
			texts: []string{"main cpu=15", "log cpu=100m"}, want: none},
		"one is left": {options: cpumanager.Options{StrictReservation: true}, sharing: true,
			texts: []string{"main cpu=14", "log cpu=100m"}, want: "log:; main: cpus 1-7,9-15"},
		"the pod that shares comes last": {options: cpumanager.Options{StrictReservation: true},
			taken: "1-15", texts: []string{"main cpu=100m"}, want: none},
	} {
		t.Run(name, func(t *testing.T) {
			v := withOptions(t, rig(t, topology.None, topology.ContainerScope), test.options)
			taken, err := cpuset.Parse(test.taken)
			if err != nil {
				t.Fatal(err)
			}
			v.Taken, v.Sharing = v.Taken.With(CPUs(taken)), test.sharing
			if got := story(v.Plan(podOfContainers(test.texts...), nil)); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}
