package admission

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/handlers"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// The words are the kubelet's, but for the last lines of each kind, which pass.
func TestPredicates(t *testing.T) {
	node := &v1.Node{}
	node.Labels = map[string]string{"disk": "ssd", "cores": "8"}
	node.Spec.Taints = []v1.Taint{{Key: "a", Effect: v1.TaintEffectNoSchedule},
		{Key: "b", Value: "x", Effect: v1.TaintEffectNoExecute},
		{Key: "wear", Value: "10", Effect: v1.TaintEffectNoExecute}}
	worn := v1.Toleration{Key: "wear", Operator: v1.TolerationOpExists}
	numbers := func(most string) []v1.Toleration {
		return []v1.Toleration{{Key: "b", Operator: v1.TolerationOpExists},
			{Key: "wear", Operator: v1.TolerationOpLt, Value: most}}
	}
	needs := func(key string, op v1.NodeSelectorOperator, values ...string) *v1.Affinity {
		return &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
				NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
					{Key: key, Operator: op, Values: values}}}}}}}
	}
	apparmor := func(kind v1.AppArmorProfileType) *v1.AppArmorProfile {
		return &v1.AppArmorProfile{Type: kind}
	}
	const noMatch = "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's " +
		"node affinity/selector"
	const noAppArmor = "AppArmor: Cannot enforce AppArmor: AppArmor is not enabled on the host"
	const tainted = "TaintToleration: Predicate TaintToleration failed: node(s) had taints " +
		"that the pod didn't tolerate"
	for _, tt := range []struct {
		name    string
		handler decide.Handler
		change  func(*v1.Pod)
		want    string
	}{
		{"windows", handlers.OS, func(p *v1.Pod) { p.Spec.OS = &v1.PodOS{Name: v1.Windows} },
			"PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS"},
		{"labelled windows", handlers.OS, func(p *v1.Pod) {
			p.Labels = map[string]string{v1.LabelOSStable: "windows"}
		},
			"PodOSSelectorNodeLabelDoesNotMatch: Failed to admit pod as the " +
				"`kubernetes.io/os` label doesn't match node label"},
		{"linux", handlers.OS, func(p *v1.Pod) { p.Spec.OS = &v1.PodOS{Name: v1.Linux} }, ""},
		{"selector", handlers.Affinity, func(p *v1.Pod) {
			p.Spec.NodeSelector = map[string]string{"disk": "hdd"}
		}, noMatch},
		{"selected", handlers.Affinity, func(p *v1.Pod) {
			p.Spec.NodeSelector = map[string]string{"disk": "ssd"}
		}, ""},
		{"affinity", handlers.Affinity, func(p *v1.Pod) {
			p.Spec.Affinity = needs("cores", v1.NodeSelectorOpGt, "8")
		}, noMatch},
		{"affine", handlers.Affinity, func(p *v1.Pod) {
			p.Spec.Affinity = needs("cores", v1.NodeSelectorOpGt, "7")
		}, ""},
		{"no affinity at all", handlers.Affinity, func(p *v1.Pod) {
			p.Spec.Affinity = needs("cores", "Nonsense", "7")
		}, noMatch},
		{"tainted", handlers.Taints(false), func(*v1.Pod) {}, tainted},
		{"tolerates another", handlers.Taints(false), func(p *v1.Pod) {
			p.Spec.Tolerations = []v1.Toleration{{Key: "b", Value: "y"}, worn}
		}, tainted},
		{"tolerates", handlers.Taints(false), func(p *v1.Pod) {
			p.Spec.Tolerations = []v1.Toleration{{Key: "b", Operator: v1.TolerationOpExists}, worn}
		}, ""},
		{"tolerates less", handlers.Taints(true), func(p *v1.Pod) {
			p.Spec.Tolerations = numbers("11")
		}, ""},
		{"tolerates no more", handlers.Taints(true), func(p *v1.Pod) {
			p.Spec.Tolerations = numbers("10")
		}, tainted},
		{"compares without the gate", handlers.Taints(false), func(p *v1.Pod) {
			p.Spec.Tolerations = numbers("11")
		}, tainted},
		{"static", handlers.Taints(false), podtest.Source("file"), ""},
		{"strict groups", handlers.GroupsPolicy(false), func(p *v1.Pod) {
			p.Spec.SecurityContext.SupplementalGroupsPolicy =
				ptr.To(v1.SupplementalGroupsPolicyStrict)
		}, "SupplementalGroupsPolicyNotSupported: SupplementalGroupsPolicy=Strict is not " +
			"supported in this node"},
		{"merged groups", handlers.GroupsPolicy(false), func(p *v1.Pod) {
			p.Spec.SecurityContext.SupplementalGroupsPolicy =
				ptr.To(v1.SupplementalGroupsPolicyMerge)
		}, ""},
		{"strict groups, known", handlers.GroupsPolicy(true), func(p *v1.Pod) {
			p.Spec.SecurityContext.SupplementalGroupsPolicy =
				ptr.To(v1.SupplementalGroupsPolicyStrict)
		}, ""},
		{"profile of the pod", handlers.AppArmor(false), func(p *v1.Pod) {
			p.Spec.SecurityContext.AppArmorProfile =
				apparmor(v1.AppArmorProfileTypeRuntimeDefault)
		}, noAppArmor},
		{"profile of a container", handlers.AppArmor(false), func(p *v1.Pod) {
			p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{
				AppArmorProfile: apparmor(v1.AppArmorProfileTypeLocalhost)}
		}, noAppArmor},
		{"profile of an annotation", handlers.AppArmor(false), func(p *v1.Pod) {
			p.Annotations = map[string]string{
				"container.apparmor.security.beta.kubernetes.io/c": "runtime/default"}
		}, noAppArmor},
		{"no profile", handlers.AppArmor(false), func(p *v1.Pod) {
			p.Spec.SecurityContext.AppArmorProfile = apparmor(v1.AppArmorProfileTypeUnconfined)
		}, ""},
		{"enforced", handlers.AppArmor(true), func(p *v1.Pod) {
			p.Spec.SecurityContext.AppArmorProfile =
				apparmor(v1.AppArmorProfileTypeRuntimeDefault)
		}, ""},
	} {
		p := podtest.New("", podtest.Containers("c"))
		p.Spec.SecurityContext = &v1.PodSecurityContext{}
		tt.change(p)
		got := ""
		if r := tt.handler(decide.Attempt{Demand: decide.DemandOf(p, nil, topology.Rules{}), Node: node}); r != nil {
			got = r.Reason + ": " + r.Message
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if r := tt.handler(decide.Attempt{Demand: decide.DemandOf(p, nil, topology.Rules{})}); r != nil &&
			(r.Reason == handlers.ReasonNodeAffinity || r.Reason == handlers.ReasonTaints) {
			t.Errorf("%s: refused for a node that is not known", tt.name)
		}
	}
}

// Of many pods with the same port the one that stays counts.
func TestPortsOfSeveral(t *testing.T) {
	p := pod("a", "cpu=1")
	p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80}}
	port := podspec.HostPorts(p)
	goes := &allocation.Entry{Hold: allocation.Terminating, Ports: port}
	stays := &allocation.Entry{Ports: port}
	for _, tt := range []struct {
		others []*allocation.Entry
		want   string
	}{
		{nil, "nil"}, {[]*allocation.Entry{{}}, "nil"},
		{[]*allocation.Entry{goes, {}}, "waits"},
		{[]*allocation.Entry{goes, stays, goes}, "refused"},
	} {
		got := "nil"
		if r := handlers.Ports(decide.Attempt{Demand: decide.DemandOf(p, nil, topology.Rules{}), Others: slices.Values(tt.others)}); r != nil {
			got = map[bool]string{true: "waits", false: "refused"}[r.Wait]
		}
		if got != tt.want {
			t.Errorf("%d others: %s, want %s", len(tt.others), got, tt.want)
		}
	}
}
