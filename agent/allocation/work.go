package allocation

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
	"github.com/numalet/numalet/topology/podspec"
)

// request is what has to be placed for a container, or for the pod in pod scope.
type request struct {
	cpus    int
	memory  map[v1.ResourceName]uint64 // bytes
	devices []deviceRequest            // ordered by resource
	// kept is what stays of what there was: the rest goes around it.
	kept Container
}

type deviceRequest struct {
	resource deviceplugin.Resource
	count    int
}

type placement struct {
	request
	hint topology.Hint
}

// work is a plan in the making: what is left after the containers placed so far.
type work struct {
	view   View
	pod    *v1.Pod
	advice Advice

	freeCPUs     cpuset.CPUSet
	reusableCPUs cpuset.CPUSet // of init containers that will have finished
	memory       ownMemory
	taken        map[string]sets.Set[string] // devices, by resource
	reusable     map[string]sets.Set[string]

	podHint *topology.Hint // in pod scope, once merged
	out     map[string]Container
	ask     *Ask
	findings
}

// findings are what a plan is explained with.
type findings struct {
	decisions []Decision
	kept      []string
}

func newWork(v View, pod *v1.Pod, advice Advice) *work {
	w := &work{
		view: v, pod: pod, advice: advice,
		reusableCPUs: cpuset.New(),
		taken:        map[string]sets.Set[string]{},
		reusable:     map[string]sets.Set[string]{},
		out:          map[string]Container{},
		memory:       ownMemory{held: slices.Clone(v.Taken.Memory)},
	}
	if v.CPUs != nil {
		w.freeCPUs = v.CPUs.Free(v.Taken.CPUs)
	}
	for resource, ids := range v.Taken.Devices {
		w.taken[resource] = ids // never written to: account makes a union
	}
	return w
}

func (w *work) plan() Plan {
	return Plan{
		Pod: Pod{
			UID: w.pod.UID, Namespace: w.pod.Namespace, Name: w.pod.Name,
			BootID: w.view.Own.BootID, Containers: w.out,
		},
		Ask: w.ask, Decisions: w.decisions, Kept: w.kept,
	}
}

// request reads a container's resources against the inventory.
func (w *work) request(c *v1.Container) (request, error) {
	var req request
	if w.view.CPUs != nil {
		req.cpus = cpumanager.Exclusive(w.pod, c)
	}
	if w.view.Memory != nil {
		req.memory = memory.Requests(w.pod, c)
	}
	for _, d := range podspec.DeviceRequests(c) {
		resource, known := w.view.Inventory.Resources[d.Resource]
		if held, ok := w.view.Own.Containers[c.Name].device(d.Resource); ok &&
			held.Answer != nil && len(held.IDs) == d.Count {
			resource.Name = d.Resource // held and answered: the plugin is not needed any more
		} else if !known || !resource.Connected {
			return req, &Unready{Resource: d.Resource, Known: known, Problem: resource.Problem}
		}
		req.devices = append(req.devices, deviceRequest{resource, d.Count})
	}
	return req, nil
}

// podRequest is the most that the pod holds at any time of its life.
func (w *work) podRequest() request {
	var req request
	if w.view.CPUs != nil {
		req.cpus = cpumanager.PodExclusive(w.pod)
	}
	if w.view.Memory != nil {
		req.memory = memory.PodRequests(w.pod)
	}
	for _, name := range slices.Sorted(slices.Values(podspec.DeviceResources(w.pod))) {
		resource := w.view.Inventory.Resources[name]
		resource.Name = name
		req.devices = append(req.devices, deviceRequest{resource, podspec.Devices(w.pod, name)})
	}
	return req
}

// merge asks the providers in the kubelet's order, devices, CPUs, memory, and merges what they
// offer under the policy.
func (w *work) merge(container string, req request) (topology.Hint, error) {
	var providers [][]topology.ResourceHints
	var devices []topology.ResourceHints
	for _, d := range req.devices {
		devices = append(devices, topology.ResourceHints{
			Resource: d.resource.Name,
			Hints:    w.deviceHints(req, d),
		})
	}
	providers = append(providers, devices)
	if req.cpus > 0 {
		providers = append(providers, []topology.ResourceHints{{
			Resource: string(v1.ResourceCPU),
			Hints:    w.view.CPUs.Hints(w.freeCPUs, w.reusableFor(req), req.cpus),
		}})
	}
	if len(req.memory) > 0 {
		providers = append(providers, w.memoryHints(req))
	}
	merged := w.mergeAll(req, providers)
	w.decisions = append(w.decisions, Decision{
		Container: container, Offers: slices.Concat(providers...), Merged: merged,
	})
	if !merged.Admit {
		if err := w.unaligned(container, req); err != nil {
			return merged.Hint, rejected(err)
		}
		return merged.Hint, &Rejection{
			Reason: ReasonTopology, Message: "Resources cannot be allocated with Topology locality",
		}
	}
	return merged.Hint, nil
}

// unaligned reports whether a request found no place because CPUs come as whole cores only.
func (w *work) unaligned(container string, req request) error {
	if req.cpus == 0 {
		return nil
	}
	var sizes []int
	if container == "" { // rather name a container's request than the pod's
		for c := range podspec.Containers(w.pod) {
			sizes = append(sizes, cpumanager.Exclusive(w.pod, c))
		}
	}
	for _, n := range append(sizes, req.cpus) {
		if err := w.view.CPUs.CheckAlignment(w.freeCPUs, w.reusableCPUs, n); err != nil {
			return err
		}
	}
	return nil
}

func (w *work) deviceHints(req request, d deviceRequest) []topology.Hint {
	return deviceplugin.Hints(w.view.Machine.NodeSet(), w.devicesAround(req, d))
}

// devices is a device request beside what is taken.
func (w *work) devices(d deviceRequest) deviceplugin.Request {
	return deviceplugin.Request{
		Resource: d.resource,
		N:        d.count,
		Taken:    w.taken[d.resource.Name],
		Reusable: sets.List(w.reusable[d.resource.Name]),
	}
}

// place chooses devices, CPUs and memory for one container under the hint, in the kubelet's order:
// of two that are short, the first is told of.
func (w *work) place(c *v1.Container, kind podspec.Kind, p placement) error {
	var got Container
	for _, d := range p.devices {
		if held, ok := p.kept.device(d.resource.Name); ok {
			got.Devices = append(got.Devices, held)
			continue
		}
		ids, err := w.choose(c.Name, d, p.hint)
		if err != nil {
			return rejected(err)
		}
		got.Devices = append(got.Devices, DeviceSet{
			Resource: d.resource.Name, IDs: ids, Nodes: nodesOf(d.resource, ids),
		})
	}
	got.CPUs, got.Memory = p.kept.CPUs, p.kept.Memory
	if p.cpus > 0 && got.CPUs.IsEmpty() {
		cpus, err := w.view.CPUs.Choose(w.freeCPUs, w.reusableCPUs, p.cpus, p.hint)
		if err != nil {
			return rejected(err)
		}
		got.CPUs = cpus
	}
	if len(p.memory) > 0 && len(got.Memory) == 0 {
		blocks, err := w.view.Memory.Choose(w.memory.held, w.memory.reusable(), p.memory, p.hint)
		if err != nil {
			return rejected(err)
		}
		got.Memory = blocks
	}
	w.account(c, kind, got)
	return nil
}

// nodesOf is where the devices are; nil when none of them is anywhere in particular.
func nodesOf(r deviceplugin.Resource, ids []string) []topology.NodeSet {
	out, known := make([]topology.NodeSet, len(ids)), false
	for i, id := range ids {
		if d, found := r.Find(id); found {
			out[i] = d.Nodes
			known = known || !out[i].IsEmpty()
		}
	}
	if !known {
		return nil
	}
	return out
}

// choose picks devices. The first time that a plugin's advice is wanted and not there yet it sets
// w.ask, and goes on without.
func (w *work) choose(container string, d deviceRequest, hint topology.Hint) ([]string, error) {
	key := AskKey{Container: container, Resource: d.resource.Name}
	req := w.devices(d)
	req.Hint = hint
	advice, asked := w.advice[key]
	if !asked && w.ask == nil {
		if want, ok := deviceplugin.AdviceWanted(req); ok {
			w.ask = &Ask{AskKey: key, PreferredRequest: want}
		}
	}
	req.Advice = advice
	return deviceplugin.Choose(req)
}

// account takes what a container got out of what is left. What an init container got may be had
// again by the containers after it; what a sidecar or a regular container got may not.
func (w *work) account(c *v1.Container, kind podspec.Kind, got Container) {
	w.out[c.Name] = got
	if w.view.Memory != nil { // else it is of an earlier policy, and stays as it is
		w.memory.take(c.Name, kind, got.Memory, w.out)
	}
	w.freeCPUs = w.freeCPUs.Difference(got.CPUs)
	if kind == podspec.Init {
		w.reusableCPUs = w.reusableCPUs.Union(got.CPUs)
	} else {
		w.reusableCPUs = w.reusableCPUs.Difference(got.CPUs)
	}
	for _, d := range got.Devices {
		w.taken[d.Resource] = w.taken[d.Resource].Union(sets.New(d.IDs...))
		if kind == podspec.Init {
			w.reusable[d.Resource] = w.reusable[d.Resource].Union(sets.New(d.IDs...))
		} else {
			w.reusable[d.Resource] = w.reusable[d.Resource].Difference(sets.New(d.IDs...))
		}
	}
}

// rejected makes an allocator's error the kubelet's rejection. An error that has a reason of its
// own speaks for itself.
func rejected(err error) *Rejection {
	if own := (interface {
		error
		Reason() string
	})(nil); errors.As(err, &own) {
		return &Rejection{Reason: own.Reason(), Message: own.Error(), Err: err}
	}
	return &Rejection{
		Reason:  ReasonUnexpected,
		Message: fmt.Sprintf("Allocate failed due to %v, which is unexpected", err),
		Err:     err,
	}
}

// placeAll places one container after the other.
func (w *work) placeAll() error {
	for c, kind := range podspec.Containers(w.pod) {
		if err := w.placeOne(c, kind); err != nil {
			return err
		}
	}
	return w.sharedLeft()
}

func (w *work) placeOne(c *v1.Container, kind podspec.Kind) error {
	if own := w.view.Own.Containers[c.Name]; w.view.Keep == KeepAll && !own.isEmpty() {
		w.account(c, kind, own)
		return nil
	}
	req, err := w.request(c)
	if err != nil {
		return err
	}
	kept, whole := w.keep(c, kind, req)
	if whole {
		w.account(c, kind, kept)
		return nil
	}
	if w.view.Keep == KeepParts {
		req.kept = kept
		w.sayKept(c, req)
	}
	later := w.keptLater(c)
	defer w.setAside(kind, later)()
	hint, err := w.hint(c, req, later)
	if err != nil {
		return err
	}
	return w.place(c, kind, placement{req, hint})
}

// hint is where a container goes: by what is merged for it, or in pod scope for the whole pod,
// once, when the first container needs it.
func (w *work) hint(c *v1.Container, req request, later []Container) (topology.Hint, error) {
	switch {
	case w.view.Policy == topology.None:
		return topology.Hint{Any: true}, nil
	case w.view.Scope != topology.PodScope:
		return w.merge(c.Name, req)
	case w.podHint != nil:
		return *w.podHint, nil
	}
	for other := range podspec.Containers(w.pod) {
		if _, err := w.request(other); err != nil {
			return topology.Hint{}, err // a plugin that is away would look like a lack of devices
		}
	}
	whole := w.podRequest()
	if w.view.Keep != KeepWhole {
		whole.kept = together(append(slices.Collect(maps.Values(w.out)),
			append(later, req.kept)...))
	}
	hint, err := w.merge("", whole)
	w.podHint = &hint
	return hint, err
}

// sharedLeft reports whether those who share CPUs still have some beside the plan.
func (w *work) sharedLeft() error {
	if w.view.CPUs == nil || !w.freeCPUs.IsEmpty() || !w.view.Sharing && !cpumanager.Shares(w.pod) {
		return nil
	}
	if err := w.view.CPUs.CheckShared(w.view.Taken.CPUs.Union(w.plan().Pod.CPUs())); err != nil {
		return rejected(err)
	}
	return nil
}
