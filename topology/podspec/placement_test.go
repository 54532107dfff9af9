package podspec

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology"
)

func TestRules(t *testing.T) {
	node := topology.Rules{
		Policy: topology.Restricted, Scope: topology.ContainerScope, Strategy: topology.LowestNodes,
		Choices: []topology.Policy{topology.None, topology.SingleNUMANode},
	}
	for _, c := range []struct {
		name   string
		asks   map[string]string
		want   func(*topology.Rules) // on the node's
		err    string
		chosen []string
	}{
		{name: "nothing", asks: map[string]string{"other": "x", AnnotationPolicy: ""}},
		{
			name: "a policy", asks: map[string]string{AnnotationPolicy: "single-numa-node"},
			want:   func(r *topology.Rules) { r.Policy = topology.SingleNUMANode },
			chosen: []string{AnnotationPolicy},
		},
		{
			name: "the node's own", asks: map[string]string{AnnotationPolicy: "restricted"},
			chosen: []string{AnnotationPolicy},
		},
		{
			name: "all",
			asks: map[string]string{
				AnnotationPolicy: "none", AnnotationScope: "pod", AnnotationStrategy: "spread",
			},
			want: func(r *topology.Rules) {
				r.Policy, r.Scope, r.Strategy = topology.None, topology.PodScope, topology.Spread
			},
			chosen: []string{AnnotationPolicy, AnnotationScope, AnnotationStrategy},
		},
		{
			name: "CPUs of a kind",
			asks: map[string]string{AnnotationIsolated: "true", AnnotationWholeCores: "true"},
			want: func(r *topology.Rules) {
				r.CPURules = topology.CPURules{Isolated: true, WholeCores: true}
			},
			chosen: []string{AnnotationIsolated, AnnotationWholeCores},
		},
		{
			name: "any CPUs", asks: map[string]string{AnnotationIsolated: "false"},
			chosen: []string{AnnotationIsolated},
		},
		{
			name: "CPUs of no kind", asks: map[string]string{AnnotationWholeCores: "1"},
			err:    `annotation numalet.io/whole-cores: "1" is neither true nor false`,
			chosen: []string{AnnotationWholeCores},
		},
		{
			name: "what it may not", asks: map[string]string{AnnotationPolicy: "best-effort"},
			err:    `annotation numalet.io/topology-policy: the topology manager policy "best-effort" `,
			chosen: []string{AnnotationPolicy},
		},
		{
			name: "what there is not", asks: map[string]string{AnnotationScope: "node"},
			err:    `annotation numalet.io/topology-scope: unknown topology manager scope "node"`,
			chosen: []string{AnnotationScope},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := &v1.Pod{}
			pod.Annotations = c.asks
			want := node
			if c.want != nil {
				c.want(&want)
			}
			got, err := Rules(pod, node)
			if c.err == "" && err != nil || c.err != "" &&
				(err == nil || !strings.HasPrefix(err.Error(), c.err)) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%+v, want %+v", got, want)
			}
			if got := CPURules(pod); got != want.CPURules {
				t.Errorf("CPUs %+v, want %+v", got, want.CPURules)
			}
			if got := PlacementAnnotations(pod); !slices.Equal(got, c.chosen) {
				t.Errorf("annotations %q, want %q", got, c.chosen)
			}
		})
	}
}
