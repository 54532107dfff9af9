package rig

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/numalet/numalet/topology/podspec"
)

// Size is what pods of a shape ask for after a resize.
type Size struct {
	Shape
	Of int // an index in Stream.Shapes
}

// Resize is a change of what a pod asks for.
type Resize struct {
	// After is the time since the pod was admitted.
	After time.Duration
	// Size is an index in Stream.Sizes.
	Size int
}

// ResizeSpec says how the pods of a template grow and shrink while they run.
type ResizeSpec struct {
	// Every is the time between two resizes of a pod.
	Every Lifetime `json:"every"`
	// To lists sizes, as multiples of what the template and its containers ask for. A pod goes from the one
	// that it asks for to another of these and 1, each as likely.
	To []float64 `json:"to"`
	// Of lists the resources that change; empty: cpu and memory.
	Of []v1.ResourceName `json:"of,omitempty"`
}

// shapesOf returns the shapes of sizes.
func shapesOf(sizes []Size) (out []Shape) {
	for _, s := range sizes {
		out = append(out, s.Shape)
	}
	return out
}

// maxResizes bounds the resizes of a pod, and the sizes of a template.
const maxResizes = 1000

// resizable are the resources of which a running pod may ask for another amount.
var resizable = []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory}

func (r *ResizeSpec) check() error {
	if r == nil {
		return nil
	}
	if err := r.Every.check("every"); err != nil {
		return err
	}
	if len(r.To) == 0 || len(r.To) > maxResizes {
		return errors.New("to lists the sizes as multiples, like [0.5, 2]")
	}
	for i, factor := range r.To {
		if factor <= 0 || factor > 1000 || factor == 1 || slices.Contains(r.To[:i], factor) {
			return fmt.Errorf("to: %v is not above 0 and up to 1000, is 1, or is there twice", factor)
		}
	}
	for _, name := range r.Of {
		if !slices.Contains(resizable, name) {
			return fmt.Errorf("of: %s of a running pod stays as it is; there are cpu and memory", name)
		}
	}
	return nil
}

// sizes returns the sizes of the template's pods, which have this shape: first as they come, then the
// multiples.
func (r *ResizeSpec) sizes(of Shape, index int) []Size {
	out, names := []Size{{of, index}}, r.Of
	if len(names) == 0 {
		names = resizable
	}
	for _, factor := range r.To {
		size := of
		size.Name += " x" + strconv.FormatFloat(factor, 'f', -1, 64)
		size.Pod = scaled(of.Pod, factor, names)
		out = append(out, Size{size, index})
	}
	return out
}

// scaled returns the pod with a multiple of its requests and limits. Init containers that end keep theirs, as
// the API server demands. What the pod asks for as a whole covers what its containers then do.
func scaled(pod *v1.Pod, factor float64, names []v1.ResourceName) *v1.Pod {
	guaranteed := podspec.QOSClass(pod) == v1.PodQOSGuaranteed
	pod, s := pod.DeepCopy(), scaling{factor, names}
	for c, kind := range podspec.Containers(pod) {
		if kind != podspec.Init {
			s.scale(c.Resources, nil, guaranteed && podspec.QualifiesAlone(pod, c))
		}
	}
	if whole := pod.Spec.Resources; whole != nil {
		s.scale(*whole, containersRequest(pod), guaranteed)
	}
	return pod
}

// scaling multiplies what pods ask for.
type scaling struct {
	factor float64
	names  []v1.ResourceName
}

// scale sets the requests and limits to multiples of them, and to at least this much. exclusive: CPUs are
// for one alone, and whole ones stay whole.
func (s scaling) scale(r v1.ResourceRequirements, least v1.ResourceList, exclusive bool) {
	for _, list := range []v1.ResourceList{r.Requests, r.Limits} {
		for _, name := range s.names {
			if q, is := list[name]; is {
				amount := max(float64(amountOf(name, q))*s.factor, float64(amountOf(name, least[name])))
				whole := exclusive && q.MilliValue()%1000 == 0
				list[name] = roundedUp(name, amount, whole)
			}
		}
	}
}

// roundedUp returns at least this amount: CPUs in whole ones if whole, or in millicores, memory in MiB.
func roundedUp(name v1.ResourceName, amount float64, whole bool) resource.Quantity {
	unit := int64(1 << 20)
	if name == v1.ResourceCPU {
		if unit = 1; whole {
			unit = 1000
		}
	}
	n := int64(math.Ceil(amount/float64(unit)-1e-9)) * unit
	if name == v1.ResourceCPU {
		return *resource.NewMilliQuantity(n, resource.DecimalSI)
	}
	return *resource.NewQuantity(n, resource.BinarySI)
}

// draw draws the resizes of a pod that runs for as long as this; its sizes are those from first on.
func (r *ResizeSpec) draw(source *rand.Rand, lifetime time.Duration, first int) (out []Resize) {
	if r == nil {
		return nil
	}
	at, now := time.Duration(0), 0
	for len(out) < maxResizes {
		if at += r.Every.draw(source); at >= lifetime {
			break
		}
		next := source.IntN(len(r.To))
		if next >= now {
			next++
		}
		now = next
		out = append(out, Resize{After: at, Size: first + now})
	}
	return out
}

// check refuses a time without a mean, or of an unknown distribution.
func (l Lifetime) check(name string) error {
	switch {
	case l.Mean <= 0:
		return fmt.Errorf("%s is missing; write it like 2h", name)
	case time.Duration(l.Mean) > maxTime:
		return fmt.Errorf("%s is longer than %s", name, maxTime)
	case drawLifetime(l.Distribution) == nil:
		return fmt.Errorf("distribution %q is none of exponential, fixed, uniform, lognormal", l.Distribution)
	}
	return nil
}

// draw draws a time.
func (l Lifetime) draw(source *rand.Rand) time.Duration {
	drawn := drawLifetime(l.Distribution)(source) * float64(l.Mean)
	return max(tick, time.Duration(min(drawn, float64(maxTime))).Round(tick))
}

// checkSize refuses a size that a pod of the shape cannot be resized to.
func (s Shape) checkSize(size Shape) error {
	if was, is := podspec.QOSClass(s.Pod), podspec.QOSClass(size.Pod); was != is {
		return fmt.Errorf("it is %s and the template %s; a resize does not change the QoS class", is, was)
	}
	if !reflect.DeepEqual(lasting(s), lasting(size)) {
		return errors.New("it differs from the template in more than cpu and memory, of the pod as a whole and of " +
			"containers that run on")
	}
	return nil
}

// lasting returns what a resize leaves as it is.
func lasting(s Shape) PodSpec {
	spec := specOf(s)
	without := func(c ContainerSpec) {
		for _, name := range resizable {
			delete(c.Limits, string(name))
			delete(c.Requests, string(name))
		}
	}
	for _, c := range spec.InitContainers {
		if c.RestartPolicy != "" {
			without(c)
		}
	}
	for _, c := range spec.Containers {
		without(c)
	}
	if whole := spec.Resources; whole != nil {
		without(ContainerSpec{Limits: whole.Limits, Requests: whole.Requests})
	}
	return spec
}
