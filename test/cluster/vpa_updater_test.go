package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/test/cluster/rig"
)

// vpaUpdater does what the updater of the Vertical Pod Autoscaler does in the mode InPlaceOrRecreate with
// its default flags. In each round it patches the subresource resize of pods whose requests are out of the
// recommended range, for at most half of the replicas. It leaves pods alone that are being resized, and
// evicts those whose patch is refused, and those whose resize is infeasible, has failed or takes too long.
// The requests of new pods are those of their workload: there is no webhook that sets them to what is
// recommended.
type vpaUpdater struct {
	rig.Cluster
	// interval is the time between two rounds, the updater's --updater-interval.
	interval time.Duration
	// resizing says since when the updater has seen that a pod is being resized. It never forgets that.
	resizing map[types.UID]time.Time
	// patched is told of each patch, with the pod as the API server then had it.
	patched func(*v1.Pod)
	// refused and evicted count the patches that the API server has refused, and the evictions.
	refused, evicted int
}

// recommendation holds the requests that a recommender wants for the containers of a workload's pods.
type recommendation map[string]v1.ResourceList

// vpaWay is what the updater does with a pod.
type vpaWay string

const (
	vpaLeaves  vpaWay = "leave"
	vpaPatches vpaWay = "patch"
	vpaEvicts  vpaWay = "evict"
)

// round looks at each pod of a workload once.
func (u *vpaUpdater) round(ctx context.Context, name string, replicas int, target recommendation) error {
	of := metav1.ListOptions{LabelSelector: "app=" + name}
	list, err := u.Client.CoreV1().Pods(u.Namespace).List(ctx, of)
	if err != nil {
		return err
	}
	pods := slices.DeleteFunc(list.Items, func(p v1.Pod) bool { return isDeleted(&p) || isOver(&p) })
	disrupted := 0
	for _, p := range pods {
		if p.Status.Phase == v1.PodPending {
			disrupted++
		}
	}
	disrupted += replicas - len(pods)
	for _, p := range pods {
		way := u.decide(&p, target)
		if way == vpaLeaves || disrupted >= max(replicas/2, 1) {
			continue
		}
		if way == vpaPatches {
			err = u.patch(ctx, &p, target)
		}
		if refused := apierrors.IsForbidden(err); refused || way == vpaEvicts {
			if u.evicted++; refused {
				u.refused++
			}
			err = u.Client.CoreV1().Pods(u.Namespace).EvictV1(ctx,
				&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}})
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", way, p.Name, err)
		}
		disrupted++
	}
	return nil
}

// decide returns what the updater does with a pod, if enough other replicas run.
func (u *vpaUpdater) decide(p *v1.Pod, target recommendation) vpaWay {
	if p.Status.Phase == v1.PodPending || !target.isOutside(p) {
		return vpaLeaves
	}
	pending, is := conditionOf(p, v1.PodResizePending)
	progress, goesOn := conditionOf(p, v1.PodResizeInProgress)
	if !is && !goesOn {
		return vpaPatches
	}
	if _, seen := u.resizing[p.UID]; !seen {
		u.resizing[p.UID] = time.Now()
	}
	patience := 60 * u.interval // an hour
	switch {
	case is && pending.Reason == v1.PodReasonDeferred:
		patience = 5 * u.interval
	case is, progress.Reason != "", progress.Message != "":
		patience = 0 // infeasible, or an error
	}
	if time.Since(u.resizing[p.UID]) > patience {
		return vpaEvicts
	}
	return vpaLeaves
}

// conditionOf returns a condition that is true.
func conditionOf(p *v1.Pod, kind v1.PodConditionType) (c v1.PodCondition, is bool) {
	at := slices.IndexFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == kind && c.Status == v1.ConditionTrue
	})
	if at < 0 {
		return c, false
	}
	return p.Status.Conditions[at], true
}

// isOutside reports whether a request is more than a tenth off its target. The pod's status says what it
// has.
func (r recommendation) isOutside(p *v1.Pod) bool {
	for _, c := range p.Spec.Containers {
		has := actual(p, c)
		for name, target := range r[c.Name] {
			wants, request := target.AsApproximateFloat64(), has.Requests.Name(name, "")
			if got := request.AsApproximateFloat64(); got < 0.9*wants || got > 1.1*wants {
				return true
			}
		}
	}
	return false
}

// actual returns the resources that a container has as the pod's status says, or else those in its spec.
func actual(p *v1.Pod, c v1.Container) v1.ResourceRequirements {
	for _, s := range p.Status.ContainerStatuses {
		if s.Name == c.Name && s.Resources != nil {
			return *s.Resources
		}
	}
	return c.Resources
}

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// patch sends the two patches of an update: that of the resources, and that of an annotation.
func (u *vpaUpdater) patch(ctx context.Context, p *v1.Pod, target recommendation) error {
	var resize []operation
	for i, c := range p.Spec.Containers {
		requests := target[c.Name]
		resize = append(resize, added(i, "requests", requests)...)
		resize = append(resize, added(i, "limits", proportional(actual(p, c), requests))...)
	}
	after, err := u.send(ctx, p.Name, resize, "resize")
	if err != nil {
		return err
	}
	u.patched(after)
	var annotate []operation
	if p.Annotations == nil {
		annotate = append(annotate, operation{"add", "/metadata/annotations", map[string]string{}})
	}
	annotate = append(annotate, operation{"add", "/metadata/annotations/vpaInPlaceUpdated", "true"})
	_, err = u.send(ctx, p.Name, annotate)
	return err
}

// send sends a JSON patch of a pod.
func (u *vpaUpdater) send(ctx context.Context, name string, patch []operation, of ...string) (
	*v1.Pod, error) {
	raw, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	pods := u.Client.CoreV1().Pods(u.Namespace)
	return pods.Patch(ctx, name, types.JSONPatchType, raw, metav1.PatchOptions{}, of...)
}

// added returns the operations that set resources of a container.
func added(container int, field string, to v1.ResourceList) (out []operation) {
	for name, amount := range to {
		path := fmt.Sprintf("/spec/containers/%d/resources/%s/%s", container, field, name)
		out = append(out, operation{"add", path, amount.String()})
	}
	return out
}

// proportional returns limits in the ratio to the requests that the container has now.
func proportional(has v1.ResourceRequirements, requests v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for name, limit := range has.Limits {
		to, recommended := requests[name]
		before := has.Requests[name]
		ratio := limit.AsApproximateFloat64() / before.AsApproximateFloat64()
		switch {
		case !recommended:
		case before.Cmp(limit) == 0:
			out[name] = to
		case name == v1.ResourceCPU:
			out[name] = *resource.NewMilliQuantity(int64(ratio*float64(to.MilliValue())), resource.DecimalSI)
		default:
			out[name] = *resource.NewQuantity(int64(ratio*float64(to.Value())), resource.DecimalSI)
		}
	}
	return out
}
