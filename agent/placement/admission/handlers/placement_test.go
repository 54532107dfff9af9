package handlers

import (
	"strings"
	"testing"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
	"github.com/numalet/numalet/topology/topologytest"
)

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
		c.on.Demand = decide.DemandOf(podtest.New("a", podtest.Guaranteed("main "+c.limits), podtest.Annotations(c.annotation, c.value)), nil, topology.Rules{})
		r := Placement(c.on)
		switch {
		case c.want == "" && r != nil:
			t.Errorf("%s=%s with %s: %s", c.annotation, c.value, c.limits, r.Message)
		case c.want != "" && (r == nil || r.Reason != ReasonPlacement ||
			!strings.HasPrefix(r.Message, "annotation "+c.annotation+": ") ||
			!strings.Contains(r.Message, c.want)):
			t.Errorf("%s=%s with %s: %+v, want %s", c.annotation, c.value, c.limits, r, c.want)
		}
	}
}
