package admission

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// stepResources are what the plugins of these tests serve.
var stepResources = [...]string{"example.com/fpga", "example.com/gpu", "example.com/nic"}

// stepChooser is the scheduler of all pods.
const stepChooser = "chooser"

// amount is what is only counted.
type amount struct{ milli, memory, pages int64 }

func (a amount) plus(b amount) amount {
	return amount{a.milli + b.milli, a.memory + b.memory, a.pages + b.pages}
}

func (a amount) max(b amount) amount {
	return amount{max(a.milli, b.milli), max(a.memory, b.memory), max(a.pages, b.pages)}
}

// within reports whether it is no more than all there is, of what asked is not zero.
func (a amount) within(all, asked amount) bool {
	return (a.milli <= all.milli || asked.milli == 0) &&
		(a.memory <= all.memory || asked.memory == 0) && (a.pages <= all.pages || asked.pages == 0)
}

type role int

const (
	starts role = iota // an init container: gone before the next one starts
	beside             // a sidecar
	works
)

// wish is what one container asks for.
type wish struct {
	name string
	role role
	amount
	requested amount
	devices   [len(stepResources)]int
	chosen    [len(stepResources)][]string // "resource/id"
}

// order is a pod as the model sees it.
type order struct {
	number     int
	uid        types.UID
	guaranteed bool
	rules      topology.CPURules
	wishes     []wish
	claims     []string
	pod        *v1.Pod
}

func (o *order) wants(resource int) bool {
	for i := range o.wishes {
		if o.wishes[i].devices[resource] > 0 {
			return true
		}
	}
	return false
}

// exclusive is how many CPUs of its own a container gets under a static policy.
func (o *order) exclusive(w *wish) int {
	if !o.guaranteed || w.milli%1000 != 0 {
		return 0
	}
	return int(w.milli / 1000)
}

func newOrder(r *rand.Rand, n int) *order {
	o := &order{number: n, uid: types.UID(fmt.Sprint("p", n))}
	quality := r.IntN(10)
	o.guaranteed = quality < 7
	o.rules = topology.CPURules{Isolated: r.IntN(5) == 0, WholeCores: r.IntN(4) == 0}
	if r.IntN(3) == 0 {
		for i := range 1 + r.IntN(2) {
			o.wishes = append(o.wishes, newWish(r, fmt.Sprint("init", i), role(r.IntN(2)), quality))
		}
	}
	for i := range 1 + r.IntN(4)/3 {
		o.wishes = append(o.wishes, newWish(r, fmt.Sprint("main", i), works, quality))
	}
	chosen := r.IntN(3) == 0
	for i := range o.wishes {
		for at := range stepResources {
			if chosen && r.IntN(3) > 0 {
				o.wishes[i].choose(r, at)
			}
		}
	}
	o.build(quality)
	return o
}

// choose chooses devices that there may be.
func (w *wish) choose(r *rand.Rand, at int) {
	for _, i := range r.Perm(6)[:w.devices[at]] {
		w.chosen[at] = append(w.chosen[at], deviceName(at, i))
	}
	slices.Sort(w.chosen[at])
}

// deviceName is "resource/id" of the plugins' devices.
func deviceName(at, i int) string {
	return fmt.Sprint(stepResources[at], "/", stepResources[at][12:], "-", i)
}

func newWish(r *rand.Rand, name string, as role, quality int) wish {
	w := wish{name: name, role: as}
	for i := range w.devices {
		if r.IntN(9) == 0 {
			w.devices[i] = 1 + r.IntN(2)
		}
	}
	if quality == 9 {
		return w
	}
	w.milli = [...]int64{500, 1000, 1000, 1000, 1000, 1500, 2000, 2000, 2000, 4000}[r.IntN(10)]
	w.memory = [...]int64{1, 1, 4, 4, 16, 16, 32, 80}[r.IntN(8)] << 26
	if r.IntN(40) == 0 {
		w.memory = 14 << 30
	}
	if r.IntN(9) == 0 {
		w.pages = int64(1+r.IntN(3)) << 28
	}
	return w
}

// build makes the pod of the wishes: an init container runs beside the sidecars before it, all
// others beside each other.
func (o *order) build(quality int) {
	p := podtest.New(string(o.uid), podtest.Annotations(
		podspec.AnnotationIsolated, strconv.FormatBool(o.rules.Isolated),
		podspec.AnnotationWholeCores, strconv.FormatBool(o.rules.WholeCores)))
	p.Spec.SchedulerName = stepChooser
	for i := range o.wishes {
		w := &o.wishes[i]
		for at, names := range w.chosen {
			if len(names) > 0 {
				p.Annotations[podspec.ChoiceAnnotation(stepResources[at], w.name)] =
					strings.ReplaceAll(strings.Join(names, ","), stepResources[at]+"/", "")
			}
		}
		w.requested = w.amount
		if quality == 7 || quality == 8 {
			w.requested.milli = min(w.milli, 250)
		}
		c := v1.Container{Name: w.name, Resources: w.resources(quality)}
		switch w.role {
		case beside:
			c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
			fallthrough
		case starts:
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		default:
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
	o.pod = p
}

// total is what is requested of what the site only counts. Isolated CPUs are not counted. Padding
// is, as much as it may be or, at least, as little.
func (o *order) total(s *site, atLeast bool) amount {
	var steady, most amount
	for i := range o.wishes {
		w := &o.wishes[i]
		asks := w.requested
		if n := o.exclusive(w); n > 0 && s.ownCPUs {
			switch {
			case o.rules.Isolated && s.isolated != 0:
				asks.milli = 0
			case o.rules.WholeCores && !atLeast:
				asks.milli = int64(n+s.threads-1) / int64(s.threads) * int64(s.threads) * 1000
			}
		}
		if w.role == starts {
			most = most.max(steady.plus(asks))
		} else {
			steady = steady.plus(asks)
		}
	}
	return most.max(steady)
}

func (w *wish) resources(quality int) v1.ResourceRequirements {
	limits, requests := v1.ResourceList{}, v1.ResourceList{}
	set := func(name v1.ResourceName, q resource.Quantity) { limits[name], requests[name] = q, q }
	if quality < 9 {
		set(v1.ResourceCPU, *resource.NewMilliQuantity(w.milli, resource.DecimalSI))
		set(v1.ResourceMemory, *resource.NewQuantity(w.memory, resource.BinarySI))
		if w.pages > 0 {
			set("hugepages-2Mi", *resource.NewQuantity(w.pages, resource.BinarySI))
		}
	}
	if quality == 7 || quality == 8 {
		requests[v1.ResourceCPU] = *resource.NewMilliQuantity(min(w.milli, 250), resource.DecimalSI)
	}
	for i, n := range w.devices {
		if n > 0 {
			set(v1.ResourceName(stepResources[i]),
				*resource.NewQuantity(int64(n), resource.DecimalSI))
		}
	}
	return v1.ResourceRequirements{Limits: limits, Requests: requests}
}

func popcount(m mask) int { return bits.OnesCount64(uint64(m)) }

// devicesAt returns the devices that the container has of one resource.
func devicesAt(p part, at int) (out []string) {
	for _, name := range p.devices {
		if strings.HasPrefix(name, stepResources[at]+"/") {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
