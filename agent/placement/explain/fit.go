package explain

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// trials bounds the plans in a search for one smaller request; a search for two may make as many
// again.
const trials = 24

// search makes plans with smaller requests or under other rules.
type search struct {
	Case
	left int
}

// WouldFit lists changes that would each give the pod a place: fewer CPUs or devices or less memory
// in one container, the other scope or else the strictest weaker policy, less of what is only
// counted, or other pods gone. Each change was planned. The number of plans is bounded, so some
// changes may be missing.
func (c Case) WouldFit() []string {
	var rejection *allocation.Rejection
	if !errors.As(c.Err, &rejection) {
		return nil // it fits, or waits for a plugin whose devices are not known
	}
	s := &search{Case: c, left: trials}
	// Changes that the pod's author can make come before those of others.
	var author, others []string
	smaller := func(change string, ok bool) {
		if ok {
			author = append(author, change)
		}
	}
	asItIs := func(change string, ok bool) {
		if ok {
			others = append(others, "the pod as it is, "+change)
		}
	}
	for _, r := range resourcesOf(c.Attempt().Requests) {
		if disconnected(c.Room.Inventory, r) { // without devices there can be no plan
			smaller(s.counted())
			return author
		}
	}
	ahead := rejection == c.Plan.Ahead // only counted resources are short
	if !ahead && (rejection.Reason == allocation.ReasonTopology || c.Plan.InWay != "") {
		scoped, ok := s.scoped()
		if !ok {
			scoped, ok = s.weaker()
		}
		asItIs(scoped, ok)
	}
	asItIs(s.unasked(podspec.AnnotationIsolated,
		func(r *topology.CPURules) *bool { return &r.Isolated }))
	asItIs(s.unasked(podspec.AnnotationWholeCores,
		func(r *topology.CPURules) *bool { return &r.WholeCores }))
	asItIs(s.unchosen())
	asItIs(s.empty())
	asItIs(s.healthy())
	asItIs(s.uncordoned())
	targets := s.targets()
	for _, t := range targets {
		smaller(s.fewer(t))
	}
	if len(author) == 0 && len(targets) > 1 {
		s.left += trials
		smaller(s.both(targets))
	}
	if ahead || rejection.Short != "" { // everything else was available
		smaller(s.counted())
	}
	return slices.Concat(author, others)
}

// try plans the pod and reports whether it has a place.
func (s *search) try(room allocation.Room, pod *v1.Pod) bool {
	if s.left == 0 {
		return false
	}
	s.left--
	plan, err := room.Plan(pod, nil)
	return err == nil && (plan.Ask == nil || len(plan.Pod.Containers) > 0)
}

// scoped tries the other scope.
func (s *search) scoped() (string, bool) {
	room := s.Room
	other := topology.ContainerScope
	if room.Scope != topology.PodScope {
		other = topology.PodScope
		if len(s.Pod.Spec.InitContainers)+len(s.Pod.Spec.Containers) < 2 {
			return "", false // with one container both scopes are the same
		}
	}
	room.Scope = other
	return fmt.Sprintf("with %s: %s", s.setting(podspec.AnnotationScope, "topologyManagerScope"),
		other), s.try(room, s.Pod)
}

// weaker finds the strictest policy below the present one under which the pod has a place.
func (s *search) weaker() (string, bool) {
	policies := []topology.Policy{
		topology.SingleNUMANode, topology.Restricted, topology.BestEffort, topology.None,
	}
	room := s.Room
	for _, policy := range policies[slices.Index(policies, s.Room.Policy)+1:] {
		room.Policy = policy
		if s.try(room, s.Pod) {
			return fmt.Sprintf("with %s: %s",
				s.setting(podspec.AnnotationPolicy, "topologyManagerPolicy"), policy), true
		}
	}
	return "", false
}

// unasked tries the pod without a rule that it chose by an annotation.
func (s *search) unasked(annotation string, rule func(*topology.CPURules) *bool) (string, bool) {
	room := s.Room
	asked := rule(&room.CPURules)
	if !*asked {
		return "", false
	}
	*asked = false
	return "without the annotation " + annotation, s.try(room, s.Pod)
}

// unchosen tries without the annotations that choose devices.
func (s *search) unchosen() (string, bool) {
	annotations := s.Room.Chosen.Annotations()
	if len(annotations) == 0 {
		return "", false
	}
	room := s.Room
	room.Chosen = nil
	return "without the annotation " + first(annotations, ", "), s.try(room, s.Pod)
}

// setting names the source of a rule: the pod's annotation, or a field of the node's configuration.
func (s *search) setting(annotation, field string) string {
	if slices.Contains(podspec.PlacementAnnotations(s.Pod), annotation) {
		return "the annotation " + annotation
	}
	return field
}

// empty tries the pod on the node without other pods.
func (s *search) empty() (string, bool) {
	room := s.Room
	room.Taken, room.Others, room.Sharing = allocation.HoldingsOf(), nil, false
	taken := s.Room.Taken
	if taken.CPUs().IsEmpty() && len(taken.Devices())+len(taken.Memory())+len(s.Room.Others) == 0 {
		return "", false
	}
	return "once other pods have ended", s.try(room, s.Pod)
}

// healthy tries with all devices of the blocking resource healthy.
func (s *search) healthy() (string, bool) {
	return s.mended("are healthy again", func(d *devicemanager.Device) { d.Healthy = true })
}

// uncordoned tries with no device of the blocking resource cordoned.
func (s *search) uncordoned() (string, bool) {
	return s.mended("are uncordoned (numalet device uncordon)",
		func(d *devicemanager.Device) { d.Cordoned = false })
}

// mended applies mend to all devices of the blocking resource and tries again, if that changes any.
func (s *search) mended(how string, mend func(*devicemanager.Device)) (string, bool) {
	b := s.Attempt().Blocking
	if b == nil {
		return "", false
	}
	r, changed := s.Room.Inventory.Resources[b.Resource], false
	devices := slices.Clone(r.Devices)
	for i, d := range devices {
		well := *d
		mend(&well)
		changed = changed || well != *d
		devices[i] = &well
	}
	if !changed {
		return "", false
	}
	room := s.Room
	room.Inventory.Resources = maps.Clone(room.Inventory.Resources)
	r.Devices = devices
	room.Inventory.Resources[b.Resource] = r
	return "once the devices of " + b.Resource + " " + how, s.try(room, s.Pod)
}

// target is a request that could be reduced.
type target struct {
	container, resource string
	count               int
}

func (t target) change(n int) string {
	whose := "container " + t.container
	if t.container == allocation.WholePod {
		whose = "the pod"
	}
	return fmt.Sprintf("%s with %s instead of %s", whose, amount(t.resource, n), number(t.resource, t.count))
}

// targets lists the pod's requests, starting with the blocking ones.
func (s *search) targets() []target {
	tried, chosen := s.Attempt(), s.Room.Chosen
	var out []target
	for _, request := range tried.Requests {
		for _, a := range request.Resources {
			if chosen[request.Container][a.Resource] != nil {
				continue // fewer would be another choice
			}
			out = append(out, target{request.Container, a.Resource, a.Count})
		}
	}
	b := tried.Blocking
	if b == nil {
		return nil
	}
	distance := func(t target) int {
		switch {
		case t.resource != b.Resource:
			return 2
		case t.container != b.Container:
			return 1
		}
		return 0
	}
	slices.SortStableFunc(out, func(a, b target) int { return distance(a) - distance(b) })
	return out
}

// fewer finds a smaller count that fits, if possible the largest: it doubles its steps, then
// bisects. A smaller count may fail where a larger one fits, as with whole cores; the returned
// count does fit.
func (s *search) fewer(t target) (string, bool) {
	unit := step(t.resource, t.count)
	all := (t.count + unit - 1) / unit
	fits := func(n int) bool { return s.try(s.Room, with(s.Pod, t, n*unit)) }
	bad, good := all, 0
	for step := 1; all-step > 0 && s.left > 0; step *= 2 {
		if fits(all - step) {
			good = all - step
			break
		}
		bad = all - step
	}
	if good == 0 && bad > 1 && fits(1) {
		good = 1
	}
	if good == 0 {
		return "", false
	}
	for bad-good > 1 && s.left > 0 {
		if middle := (good + bad) / 2; fits(middle) {
			good = middle
		} else {
			bad = middle
		}
	}
	return t.change(good * unit), true
}

// both reduces two requests where one is not enough: the blocking one to the most that is free on
// one node, and another one.
func (s *search) both(targets []target) (string, bool) {
	blocking := targets[0]
	most, _ := s.Attempt().supply(blocking.resource).most()
	n := min(most, blocking.count-1)
	if n < 1 {
		return "", false
	}
	smaller := *s
	smaller.Pod = with(s.Pod, blocking, n)
	for _, t := range targets[1:] {
		if text, ok := smaller.fewer(t); ok {
			return fmt.Sprintf("%s and %s", blocking.change(n), text), true
		}
	}
	return "", false
}

// with returns the pod with another count in one container, or as a whole.
func with(pod *v1.Pod, t target, n int) *v1.Pod {
	out := pod.DeepCopy()
	var of v1.ResourceRequirements
	if c, _ := podspec.Find(out, t.container); c != nil {
		of = c.Resources
	} else if out.Spec.Resources != nil {
		of = *out.Spec.Resources
	}
	name := v1.ResourceName(t.resource)
	if isCPU(t.resource) {
		name = v1.ResourceCPU
	}
	for _, list := range []v1.ResourceList{of.Limits, of.Requests} {
		if _, ok := list[name]; ok {
			list[name] = quantity(t.resource, n)
		}
	}
	return out
}

// counted says how much is left of the resources that are only counted.
func (s *search) counted() (string, bool) {
	var parts []string
	for _, short := range s.Room.Shortages(s.Pod) {
		left := short.Capacity - short.Used
		if left <= 0 || short.Resource == v1.ResourcePods {
			return "", false
		}
		name := string(short.Resource)
		what := name
		switch {
		case name == cpu && left == 1000:
			what = "CPU"
		case name == cpu:
			what = "CPUs"
		}
		parts = append(parts, counted(name, left)+" "+what)
	}
	return "the whole pod with at most " + strings.Join(parts, " and "), len(parts) > 0
}
