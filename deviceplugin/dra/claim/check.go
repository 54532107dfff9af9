package claim

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/internal/oneline"
)

// errUnallocated: the scheduler has not chosen devices for the claim.
var errUnallocated = errors.New("not allocated")

// Check says why the pod may not use the claim that it refers to, or not yet. If groups, a claim may
// belong to, and be reserved for, the PodGroup that the pod is in (DRAWorkloadResourceClaims).
func Check(pod *v1.Pod, ref Ref, c *resourcev1.ResourceClaim, groups bool) error {
	err := check(pod, ref, c, groups)
	if groups || err == nil || errors.Is(err, errUnallocated) {
		return err
	}
	if with := check(pod, ref, c, true); with != nil && !errors.Is(with, errUnallocated) {
		return err
	}
	return fmt.Errorf("%w; it is for the PodGroup that the pod is in: turn on the feature gate "+
		"DRAWorkloadResourceClaims on this node", err)
}

func check(pod *v1.Pod, ref Ref, c *resourcev1.ResourceClaim, groups bool) error {
	if ref.Owned {
		if err := resourceclaim.IsForPod(pod, c, groups); err != nil {
			return err
		}
	}
	switch {
	case !resourceclaim.IsReservedForPod(pod, c, groups):
		return fmt.Errorf("pod %s (%s) is not allowed to use ResourceClaim %s (%s)",
			pod.Name, pod.UID, ref.Name, c.UID)
	case c.Status.Allocation == nil:
		return fmt.Errorf("ResourceClaim %s: %w", c.Name, errUnallocated)
	default:
		return nil
	}
}

// On says why the devices of an allocated claim cannot be had on the node; nil: they can, or the node
// is not known.
func On(node *v1.Node, c *resourcev1.ResourceClaim) error {
	if node == nil || c.Status.Allocation == nil || c.Status.Allocation.NodeSelector == nil {
		return nil
	}
	where, err := nodeaffinity.NewNodeSelector(c.Status.Allocation.NodeSelector)
	if err != nil {
		return fmt.Errorf("ResourceClaim %s: the nodeSelector of its allocation is invalid: %w", c.Name, err)
	}
	if where.Match(node) {
		return nil
	}
	return fmt.Errorf("ResourceClaim %s is allocated for another node, where %s, and not for %s: leave the "+
		"choice of the pod's node to the scheduler", c.Name, wordsOf(c.Status.Allocation.NodeSelector), node.Name)
}

func wordsOf(s *v1.NodeSelector) string {
	var terms []string
	for _, term := range s.NodeSelectorTerms {
		var all []string
		for _, one := range slices.Concat(term.MatchFields, term.MatchExpressions) {
			all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s", one.Key, one.Operator,
				strings.Join(one.Values, ","))))
		}
		terms = append(terms, strings.Join(all, " and "))
	}
	return oneline.Cut(strings.Join(terms, ", or "), maxWords)
}

// maxWords bounds what is said of a selector.
const maxWords = 256

// UseOf returns the pod's use of an allocated claim.
func UseOf(ref Ref, c *resourcev1.ResourceClaim) Use {
	u := Use{Pod: ref.Pod, Claim: dra.Claim{Namespace: c.Namespace, Name: c.Name, UID: c.UID}}
	if c.Status.Allocation == nil {
		return u
	}
	for _, r := range c.Status.Allocation.Devices.Results {
		d := Device{Request: r.Request, Driver: r.Driver, Pool: r.Pool, Name: r.Device}
		if r.ShareID != nil {
			d.ShareID = string(*r.ShareID)
		}
		d.Admin = r.AdminAccess != nil && *r.AdminAccess
		d.Consumed = AmountOf(r.Driver, r.ConsumedCapacity,
			func(q resource.Quantity) resource.Quantity { return q })
		u.Devices = append(u.Devices, d)
	}
	return u
}

// Drivers returns the drivers of the use's devices, each once, sorted.
func (u Use) Drivers() (out []string) {
	for _, d := range u.Devices {
		out = append(out, d.Driver)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Skip says which calls a driver does not want for a claim.
type Skip struct {
	Prepare   bool `json:"prepare,omitempty"`
	Unprepare bool `json:"unprepare,omitempty"`
}

// Skips has Skip by driver.
type Skips map[string]Skip

// ErrSkips: a driver wants no calls for a claim, which takes a feature gate.
// ErrReplaced: a claim is not the one for which the pod was given its place.
var ErrReplaced = errors.New("the claim is another one than before, of the same name")

var ErrSkips = errors.New("DRAOptionalNodeOperations feature gate is disabled on kubelet")

// SkipsOf returns which calls the claim's drivers do not want: those that none of the driver's
// devices needs.
func SkipsOf(c *resourcev1.ResourceClaim) Skips {
	out := Skips{}
	for _, r := range c.Status.Allocation.Devices.Results {
		skips := func(op resourcev1.SkipNodeOperation) bool {
			return slices.Contains(r.SkipNodeOperations, op) ||
				slices.Contains(r.SkipNodeOperations, resourcev1.SkipNodeOperationAll)
		}
		own := Skip{
			Prepare:   skips(resourcev1.SkipNodeOperationNodePrepareResources),
			Unprepare: skips(resourcev1.SkipNodeOperationNodeUnprepareResources),
		}
		if so, known := out[r.Driver]; known {
			own.Prepare, own.Unprepare = own.Prepare && so.Prepare, own.Unprepare && so.Unprepare
		}
		out[r.Driver] = own
	}
	return out
}
