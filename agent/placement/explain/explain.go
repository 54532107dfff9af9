package explain

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/oneline"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/podspec"
)

const cpu = string(v1.ResourceCPU)

// shown bounds the placements of an offer that are listed; wide machines have thousands.
const shown = 8

// Case is one decision: the room, the pod, and the result of the plan.
type Case struct {
	Room allocation.Room
	Pod  *v1.Pod
	Plan allocation.Plan
	// Err is the plan's error; nil if the pod has a place.
	Err error
}

// Explain returns the record without the verdict, which admission adds, and without what would fit,
// which takes time to compute (Case.WouldFit).
func (c Case) Explain() Record {
	return Record{
		Subject: Subject{
			UID: string(c.Pod.UID), Namespace: c.Pod.Namespace, Name: c.Pod.Name,
			Source: c.Pod.Annotations[podspec.AnnotationSource],
		},
		Rules: c.rules(), Attempt: c.Attempt(), Remarks: Remarks{
			Kept: c.Plan.Kept, Ahead: c.Err == nil && c.Plan.Ahead != nil,
		},
	}
}

// Attempt describes how the plan was made, without what would fit.
func (c Case) Attempt() (a Attempt) {
	pools := c.Room.Pools(c.Pod)
	if pools {
		whole := c.request(&v1.Container{Name: allocation.WholePod}, cpumanager.Pool(c.Pod, c.Room.Rules),
			memory.PodRequests(c.Pod, c.Room.Rules), pools)
		whole.Kind = "pod"
		a.Requests = append(a.Requests, whole)
	}
	exclusive, bytes := c.Room.ExclusiveOf(c.Pod), memory.RequestsOf(c.Pod, c.Room.Rules)
	for container, kind := range podspec.Containers(c.Pod) {
		asked := c.request(container, exclusive(container), bytes(container), pools)
		asked.Kind = kind.String()
		a.Requests = append(a.Requests, asked)
	}
	a.Free = Free(c.Room, resourcesOf(a.Requests))
	for _, d := range c.Plan.Decisions {
		if len(d.Offers) > 0 {
			a.Merges = append(a.Merges, merge(d))
		}
	}
	a.Blocking = refusal{c, a}.blocking()
	return a
}

func (c Case) rules() Rules {
	r := Rules{
		Policy: string(cmp.Or(c.Room.Policy, topology.None)),
		Scope:  string(cmp.Or(c.Room.Scope, topology.ContainerScope)),
		Chosen: append(podspec.PlacementAnnotations(c.Pod), c.Room.Chosen.Annotations()...),
	}
	if c.Room.Strategy != topology.LowestNodes {
		r.Strategy = string(c.Room.Strategy)
	}
	return r
}

// Judged returns the whole record of an outcome, including what would fit if the pod has no place.
func (c Case) Judged(v Verdict) Record {
	r := c.Explain()
	if c.Err != nil {
		r.WouldFit = c.WouldFit()
	}
	if v.Outcome == rejected {
		c.despitePlugins(&r.Attempt)
	}
	r.Verdict = v
	return r
}

// rejected is admission's outcome for a pod that does not wait.
const rejected = "Reject"

// despitePlugins names what the pod would still lack with its disconnected plugins connected: if
// anything, then the plugins are not the cause of its rejection.
func (c Case) despitePlugins(a *Attempt) {
	var unready *allocation.Unready
	if !errors.As(c.Err, &unready) {
		return
	}
	with := Case{}
	with.Room, with.Pod, _ = c.Room.Ready(c.Pod)
	with.Pod = allocation.Without(with.Pod, c.unforeseen())
	with.Plan, with.Err = with.Room.Plan(with.Pod, nil)
	if with.Err == nil {
		return
	}
	blocking := with.Attempt().Blocking
	if blocking == nil || disconnected(c.Room.Inventory, blocking.Resource) {
		return
	}
	blocking.Why += "; besides, " + unready.Error()
	a.Blocking, a.WouldFit = blocking, with.WouldFit()
}

// unforeseen returns the pod's resources that never had a device.
func (c Case) unforeseen() (out []string) {
	for _, name := range podspec.DeviceResources(c.Pod) {
		r := c.Room.Inventory.Resources[name]
		if !r.Connected && len(r.Devices) == 0 && !c.Room.IsForeign(name) {
			out = append(out, name)
		}
	}
	return out
}

// request describes what the container asks for. pools: it gets it of its pod's pool.
func (c Case) request(container *v1.Container, cpus int, bytes map[v1.ResourceName]uint64,
	pools bool) Request {
	r := Request{Container: container.Name}
	var got allocation.Container
	if c.Err == nil {
		got = c.Plan.Pod.Containers[container.Name]
	}
	c.cpuRequest(&r, cpus, got, pools)
	for _, d := range podspec.DeviceRequests(c.Pod, container) {
		a := Amount{Resource: d.Resource, Count: d.Count}
		switch {
		case c.Room.Counts(d.Resource):
			a.Foreign = "counted"
		case c.Room.IsForeign(d.Resource):
			a.Foreign = "left aside"
		}
		for _, held := range got.Devices() {
			if held.Resource == d.Resource {
				a.Got = first(held.IDs, ",")
			}
		}
		r.Resources = append(r.Resources, a)
	}
	c.memoryRequest(&r, bytes, got)
	r.Claims = claimsOf(container, got)
	return r
}

// cpuRequest appends the exclusive CPUs that are asked for, or names those that the container shares within
// its pod.
func (c Case) cpuRequest(r *Request, cpus int, got allocation.Container, pools bool) {
	policy := c.Room.Pool()
	switch {
	case policy == nil:
	case cpus > 0:
		a := Amount{Resource: c.Room.CPUResource(), Count: cpus, Got: got.CPUs().String()}
		n := cmp.Or(got.CPUs().Size(), policy.Padded(policy.Free(c.Room.Taken.CPUs()), cpus))
		if n > cpus && (r.Container == allocation.WholePod || !pools) {
			a.PaddedTo = n
		}
		r.Resources = append(r.Resources, a)
	case pools:
		r.Shares = strings.TrimSpace("CPUs " + got.CPUs().String())
	}
}

// claimsOf describes the resource claims of a container, with their devices once it is placed.
func claimsOf(c *v1.Container, got allocation.Container) (out []string) {
	for _, one := range got.Claims() {
		var devices []string
		for _, d := range one.Devices {
			devices = append(devices, d.Name+" of "+d.Driver)
		}
		out = append(out, fmt.Sprintf("%s (has %s)", one, cmp.Or(first(devices, ", "), "no device")))
	}
	for _, asked := range c.Resources.Claims {
		if len(got.Claims()) == 0 {
			out = append(out, allocation.Claim{Name: asked.Name, Request: asked.Request}.String())
		}
	}
	return out
}

// first joins the first few of many ids, each cut to a length that can be displayed.
func first(all []string, separator string) string {
	var out []string
	for _, id := range all[:min(len(all), shown)] {
		out = append(out, oneline.Cut(id, 96))
	}
	if len(all) > shown {
		out = append(out, "...")
	}
	return strings.Join(out, separator)
}

func resourcesOf(requests []Request) []string {
	var out []string
	known := sets.New[string]()
	for _, r := range requests {
		for _, a := range r.Resources {
			if !known.Has(a.Resource) && a.Foreign == "" {
				known.Insert(a.Resource)
				out = append(out, a.Resource)
			}
		}
	}
	return out
}

func merge(d allocation.Decision) Merge {
	m := Merge{Container: d.Container, Merged: d.Merged.Hint.String(), Admitted: d.Merged.Admit}
	for _, o := range d.Offers {
		m.Offers = append(m.Offers, offer(o))
	}
	return m
}

func offer(r topology.ResourceHints) Offer {
	o := Offer{Resource: r.Resource, Any: r.Hints == nil, Placements: len(r.Hints)}
	for _, h := range r.Hints { // allocators list narrow sets first
		list := &o.Possible
		if h.Preferred {
			list = &o.Preferred
		}
		switch {
		case h.Any:
			o.Any = true
		case len(*list) < shown:
			*list = append(*list, h.Nodes.String())
		}
	}
	return o
}

// disconnected reports whether the resource's device plugin is not connected.
func disconnected(inventory devicemanager.Inventory, resource string) bool {
	return !isCPU(resource) && !isMemory(resource) && !inventory.Resources[resource].Connected
}
