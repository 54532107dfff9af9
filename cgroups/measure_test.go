package cgroups

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/component-base/metrics"
)

// Each cgroup that is made or removed counts as one operation, and so does each write of the QoS
// classes; removing a missing one does not count.
func TestOperationsAreMeasured(t *testing.T) {
	rewritable(t)
	ctx, registry := t.Context(), metrics.NewKubeRegistry()
	h := newHost(t).unified(allControllers, "/kubepods", "/kubepods/burstable")
	tree := h.tree(Config{Registry: registry})
	pod := testPod("b1", "cpu=500m..")
	for _, err := range []error{
		tree.EnsureNode(ctx, Resources{}), madePod(ctx, tree, pod, PodOptions{}),
		tree.UpdateQOS(ctx, nil, Reserve{}), tree.RemovePod(ctx, "b1"), tree.RemovePod(ctx, "b1"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("%d metrics (%v), want one", len(families), err)
	}
	const name = "kubelet_cgroup_manager_duration_seconds"
	if got := families[0].GetName(); got != name {
		t.Errorf("the metric is %s, want %s", got, name)
	}
	var got []string
	for _, one := range families[0].GetMetric() {
		got = append(got, one.GetLabel()[0].GetValue()+
			strings.Repeat("+", int(one.GetHistogram().GetSampleCount())))
	}
	if want := []string{"create++", "destroy+", "update++"}; !slices.Equal(got, want) {
		t.Errorf("operations %q, want %q", got, want)
	}
}
