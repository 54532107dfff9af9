package admission

import (
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/handlers"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
	"github.com/numalet/numalet/topology/topologytest"
)

// isolating has CPUs of the desk's machine isolated, of eight of which the first is reserved.
func isolating(t *testing.T, isolated ...int) func(*Config) {
	return func(cfg *Config) {
		h := cfg.Hardware()
		var err error
		if h.CPUs, err = h.CPUs.Isolating(cpuset.New(isolated...)); err != nil {
			t.Fatal(err)
		}
		cfg.Hardware = func() machine.Hardware { return h }
		cfg.Handlers = []decide.Handler{handlers.Placement}
	}
}

// Each pool is counted for itself: of what is only requested, those who do not ask have what is not
// isolated. Who asks for isolated CPUs that a terminating pod has waits for these.
func TestIsolatedCPUsAreCountedApart(t *testing.T) {
	bubble(t, func(t *testing.T, dir string) {
		d := open(t, dir, &plugins{}, isolating(t, 5, 6, 7))
		defer d.stop()
		isolated := func(uid, limits string) *v1.Pod {
			return pod(uid, limits, podtest.Annotations(podspec.AnnotationIsolated, "true"))
		}
		d.queue.Submit(isolated("a", "cpu=2"), false)
		d.expect("a Admit")
		d.queue.Submit(pod("shares", "cpu=3500m"), false)
		d.expect("shares Admit") // of four
		d.queue.Submit(pod("one", "cpu=1"), false)
		d.expect("one Reject: OutOfcpu: Node didn't have enough resource: cpu, requested: 1000, " +
			"used: 3500, capacity: 4000")
		d.queue.Submit(isolated("four", "cpu=4"), false)
		d.expect("four Reject: OutOfIsolatedCPUs: not enough isolated cpus available to satisfy " +
			"request: requested=4, available=1; the node isolates 3 (5-7)")

		d.queue.Leaving("shares", false) // gives back nothing of what b waits for
		d.queue.Leaving("a", false)
		d.queue.Submit(isolated("b", "cpu=3"), false)
		synctest.Wait()
		said := d.hear()
		if len(said) != 1 || !strings.HasPrefix(said[0], "b Wait: "+decide.ReasonWaitResources+
			": not enough isolated cpus") {
			t.Fatalf("said %q", said)
		}
		d.queue.Release("shares")
		d.expect()
		d.queue.Release("a")
		d.expect("b Admit")
		if got := d.store.State().Pods["b"].CPUs().String(); got != "5-7" {
			t.Errorf("b has CPUs %s", got)
		}
	})
}

// What a node cannot follow is refused by the annotation's name.
func TestPlacementOfCPUs(t *testing.T) {
	laptop := topologytest.Fixture(t, "laptop")
	static, err := cpumanager.NewStatic(laptop, cpuset.New(0), cpumanager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	apart, err := static.Isolating(cpuset.New(5))
	if err != nil {
		t.Fatal(err)
	}
	with, without := decide.Attempt{CPUs: apart}, decide.Attempt{CPUs: static}
	for _, c := range []struct {
		on                        decide.Attempt
		limits, annotation, value string
		want                      string // "": it passes
	}{
		{with, "cpu=1", podspec.AnnotationIsolated, "true", ""},
		{with, "cpu=100m", podspec.AnnotationIsolated, "false", ""},
		{without, "cpu=1", podspec.AnnotationWholeCores, "true", ""},
		{with, "cpu=1", podspec.AnnotationIsolated, "yes", `"yes" is neither true nor false`},
		{without, "cpu=1", podspec.AnnotationIsolated, "true", "this node keeps no CPUs isolated"},
		{decide.Attempt{}, "cpu=1", podspec.AnnotationIsolated, "true", "cpuManagerPolicy is none"},
		{decide.Attempt{}, "cpu=1", podspec.AnnotationWholeCores, "true", "cpuManagerPolicy is none"},
		{with, "cpu=100m", podspec.AnnotationIsolated, "true", "no container of the pod asks for CPUs"},
		{with, "cpu=100m", podspec.AnnotationWholeCores, "true", "no container of the pod asks for"},
	} {
		c.on.Demand = decide.DemandOf(pod("a", c.limits, podtest.Annotations(c.annotation, c.value)), nil, topology.Rules{})
		r := handlers.Placement(c.on)
		switch {
		case c.want == "" && r != nil:
			t.Errorf("%s=%s with %s: %s", c.annotation, c.value, c.limits, r.Message)
		case c.want != "" && (r == nil || r.Reason != handlers.ReasonPlacement ||
			!strings.HasPrefix(r.Message, "annotation "+c.annotation+": ") ||
			!strings.Contains(r.Message, c.want)):
			t.Errorf("%s=%s with %s: %+v, want %s", c.annotation, c.value, c.limits, r, c.want)
		}
	}
}
