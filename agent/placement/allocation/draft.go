package allocation

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// draft is a plan under construction.
type draft struct {
	view   View
	pod    *v1.Pod
	advice Advice
	plan   Plan // as far as it goes

	providers  []provider
	pools      bool           // the pod gets a pool, which is the first of the containers
	containers []claimant     // in the order of their starts
	podHint    *topology.Hint // set in pod scope, after the merge
}

// claimant is a container with its demands, in the order of the providers.
type claimant struct {
	*v1.Container
	kind    podspec.Kind
	demands []demand
	err     error // an *Unready or a *Rejection
	resizes bool  // it runs, and is to have other amounts
}

func newDraft(v View, pod *v1.Pod, advice Advice) *draft {
	d := &draft{view: v, pod: pod, advice: advice, plan: Plan{Pod: Pod{
		UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, BootID: v.Own.BootID,
		Containers: map[string]Container{},
	}}}
	d.pools = v.Pools(pod)
	d.providers = providersOf(d)
	if d.pools {
		d.containers = append(d.containers, pooling{d}.claimant())
	}
	for c, kind := range podspec.Containers(pod) {
		a := claimant{Container: c, kind: kind, resizes: v.Keep == KeepResized}
		if a.demands, a.err = d.ask(c); a.resizes {
			a.demands, a.err = resizables(a.demands, v.Own.Containers[c.Name]), nil
		}
		d.containers = append(d.containers, a)
	}
	return d
}

// ask collects the demands of the container, or of the pod if c is nil.
func (d *draft) ask(c *v1.Container) (demands []demand, err error) {
	for _, p := range d.providers {
		one, problem := p.ask(c)
		if demands = append(demands, one); err == nil {
			err = problem
		}
	}
	return demands, err
}

// placeAll places the containers in the order of their starts.
func (d *draft) placeAll() error {
	for at := range d.containers {
		if err := d.place(at); err != nil {
			return err
		}
	}
	pooling{d}.shareRest()
	return d.check()
}

// check asks the providers whether the whole plan is acceptable.
func (d *draft) check() error {
	for _, p := range able[checker](d.providers) {
		if err := p.check(); err != nil {
			return rejected(err)
		}
	}
	return nil
}

func (d *draft) place(at int) error {
	a := d.containers[at]
	own := pooling{d}.own(a)
	if d.view.Keep == KeepAll && !own.IsEmpty() {
		d.give(a, own)
		return nil
	}
	if a.err != nil {
		return a.err
	}
	got, whole := a.keep(own)
	if whole {
		d.settle(a, got)
		return nil
	}
	switch d.view.Keep {
	case KeepResized:
	case KeepParts:
		d.sayKept(a.Name, own, got)
	default:
		got = Container{}
	}
	if err := a.preset(&got); err != nil {
		return rejected(err)
	}
	later := d.keptLater(at)
	aside := later
	if a.kind == podspec.Init && d.view.Keep != KeepAll {
		aside = nil // it ends before they start
	}
	hint, err := d.hint(a, got, later, aside)
	if err != nil {
		return err
	}
	for _, one := range a.demands {
		if err := one.choose(aside, hint, &got); err != nil {
			return rejected(err)
		}
	}
	d.settle(a, got)
	return nil
}

// settle gives the container its holdings. An init container shares what is left of the pod's pool when it
// starts, the others what is left after all have their parts.
func (d *draft) settle(a claimant, got Container) {
	if a.kind == podspec.Init {
		got = pooling{d}.share(a, got)
	}
	d.give(a, got)
}

// give assigns holdings to the container in the plan.
func (d *draft) give(a claimant, got Container) {
	d.plan.Pod.Containers[a.Name] = got
	for _, p := range d.providers {
		p.take(a.Name, a.kind)
	}
}

// hint returns where a container goes. In pod scope it merges once for the whole pod, when the
// first container needs a place. later holds what later containers keep, aside the part of it that
// the container cannot use meanwhile.
func (d *draft) hint(a claimant, got Container, later, aside []Container) (topology.Hint, error) {
	switch {
	case d.view.Policy == topology.None:
		return topology.Hint{Any: true}, nil
	case d.view.Scope != topology.PodScope:
		return d.merge(a.Name, a.demands, fixed{[]Container{got}, aside})
	case d.podHint != nil:
		return *d.podHint, nil
	}
	for _, other := range d.containers {
		if other.err != nil {
			return topology.Hint{}, other.err // otherwise it would look like a lack of devices
		}
	}
	whole := fixed{later: aside}
	if d.view.Keep != KeepWhole {
		whole.own = slices.Collect(maps.Values(d.plan.Pod.Containers))
		whole.own = append(append(whole.own, later...), got)
	} else {
		whole.own = d.presets()
	}
	demands, err := d.ask(nil)
	if err != nil {
		return topology.Hint{}, err
	}
	hint, err := d.merge("", demands, whole)
	d.podHint = &hint
	return hint, err
}

// rejected turns an allocator's error into a rejection: with the error's own reason if it has one,
// otherwise with the kubelet's for unexpected errors.
func rejected(err error) *Rejection {
	if own := (interface {
		error
		Reason() string
	})(nil); errors.As(err, &own) {
		return &Rejection{Reason: own.Reason(), Message: own.Error(), Err: err}
	}
	return Unexpected(err)
}

// Unexpected returns the rejection that the kubelet gives for an error of one of its managers.
func Unexpected(err error) *Rejection {
	return &Rejection{
		Reason:  ReasonUnexpected,
		Message: fmt.Sprintf("Allocate failed due to %v, which is unexpected", err), Err: err,
	}
}
