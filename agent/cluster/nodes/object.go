package nodes

import (
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/topology/podspec"
)

// Identity holds what the node registers with.
type Identity struct {
	Name   string
	Labels map[string]string // --node-labels
	Taints []v1.Taint        // registerWithTaints
	// ProviderID is the cloud's id of the machine.
	ProviderID string
	// External is set if a cloud controller manager completes the node. NodeIP guides its choice of
	// addresses; empty: it chooses freely.
	External bool
	NodeIP   string
	// Attach is set if the attach-detach controller attaches volumes, and not the node.
	Attach bool
}

const (
	annotationAttach = "volumes.kubernetes.io/controller-managed-attach-detach"
	annotationNodeIP = "alpha.kubernetes.io/provided-node-ip"
	// taintExternal keeps pods away until the cloud controller manager has completed the node.
	taintExternal = "node.cloudprovider.kubernetes.io/uninitialized"
)

// Object returns the node to create, without a status.
func Object(i Identity) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: i.Name, Labels: map[string]string{
			v1.LabelHostname:        i.Name,
			"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": runtime.GOARCH,
		},
		Annotations: map[string]string{},
	}}
	maps.Copy(n.Labels, platform())
	maps.Copy(n.Labels, i.Labels)
	n.Spec.ProviderID = i.ProviderID
	n.Spec.Taints = slices.Clone(i.Taints)
	if i.Attach {
		n.Annotations[annotationAttach] = "true"
	}
	if i.External {
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{
			Key: taintExternal, Value: "true", Effect: v1.TaintEffectNoSchedule,
		})
		if i.NodeIP != "" {
			n.Annotations[annotationNodeIP] = i.NodeIP
		}
	}
	return n
}

// platform returns the labels of the platform. Each write of the status restores them, as with the
// kubelet.
func platform() map[string]string {
	return map[string]string{v1.LabelOSStable: "linux", v1.LabelArchStable: runtime.GOARCH}
}

// reconciled returns the labels that the node restores on an existing object when it registers, as
// the kubelet does. All others, except the platform's and our own, stay as they are.
func reconciled() []string {
	return []string{
		v1.LabelHostname, v1.LabelOSStable, v1.LabelArchStable,
		v1.LabelTopologyZone, v1.LabelTopologyRegion, v1.LabelInstanceTypeStable,
		v1.LabelFailureDomainBetaZone, v1.LabelFailureDomainBetaRegion, v1.LabelInstanceType,
		"beta.kubernetes.io/os", "beta.kubernetes.io/arch",
	}
}

// Labels that say what pods may ask for with the annotations of the same names, and what they get
// by default.
const (
	// LabelIsolated is the number of CPUs for pods that ask for isolated ones. A node without such
	// CPUs has no such label.
	LabelIsolated = podspec.AnnotationIsolated
	// LabelPolicy and LabelScope are the node's own policy and scope.
	LabelPolicy = podspec.AnnotationPolicy
	LabelScope  = podspec.AnnotationScope
	// LabelChoice, followed by a policy, has the value "true" if pods may choose that policy: a
	// selector cannot look into a list.
	LabelChoice = podspec.AnnotationPolicy + "."
)

// advertised returns these labels by the facts.
func advertised(f nodestatus.Facts) map[string]string {
	labels := map[string]string{}
	if f.Placement.IsolatedCPUs > 0 {
		labels[LabelIsolated] = strconv.Itoa(f.Placement.IsolatedCPUs)
	}
	if f.Placement.Rules.Policy == "" {
		return labels // not known
	}
	labels[LabelPolicy], labels[LabelScope] = string(f.Placement.Rules.Policy), string(f.Placement.Rules.Scope)
	for _, policy := range append(slices.Clone(f.Placement.Rules.Choices), f.Placement.Rules.Policy) {
		labels[LabelChoice+string(policy)] = "true"
	}
	return labels
}

// advertises reports whether a label is one of these.
func advertises(key string) bool {
	return key == LabelIsolated || key == LabelPolicy || key == LabelScope ||
		strings.HasPrefix(key, LabelChoice)
}

// advertise updates the labels of the platform and of what pods may ask for, and reports whether
// that changed any.
func advertise(n *v1.Node, f nodestatus.Facts) (changed bool) {
	labels := maps.Clone(n.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.DeleteFunc(labels, func(key, _ string) bool { return advertises(key) })
	maps.Copy(labels, platform())
	maps.Copy(labels, advertised(f))
	if maps.Equal(labels, n.Labels) {
		return false
	}
	n.Labels = labels
	return true
}

// withoutExtended sets the amounts of extended resources to 0.
func withoutExtended(s *v1.NodeStatus) {
	for _, list := range []v1.ResourceList{s.Capacity, s.Allocatable} {
		for name := range list {
			if podspec.IsExtended(name) {
				list[name] = *resource.NewQuantity(0, resource.DecimalSI)
			}
		}
	}
}

// reconcile returns the existing object with the labels and annotations of the one that would have
// been created. Taints and the provider's id stay.
func reconcile(existing, made *v1.Node) *v1.Node {
	n := existing.DeepCopy()
	for _, key := range reconciled() {
		if value, ok := made.Labels[key]; ok {
			metav1.SetMetaDataLabel(&n.ObjectMeta, key, value)
		}
	}
	for _, key := range []string{annotationAttach, annotationNodeIP} {
		delete(n.Annotations, key)
		if value, ok := made.Annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, key, value)
		}
	}
	return n
}
