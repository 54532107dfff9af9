package agent

import (
	"cmp"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/admission"
	"github.com/numalet/numalet/agent/status"
)

// record is what the agent knows of a pod that a source desires, or that is being removed.
type record struct {
	pod *v1.Pod
	// outcome is admission's last word; "" before it spoke.
	outcome admission.Outcome
	// stopping: no source desires the pod any more; its worker is removing it.
	stopping bool
	// again is the pod, desired anew before it was removed.
	again  *v1.Pod
	status v1.PodStatus
}

// pods is the table of desired pods and their statuses. The syncLoop writes what is desired, the
// workers what is; everybody may read.
type pods struct {
	node status.Node
	// health is the health of the devices that a pod holds, by container; nil: it is not told.
	health func(types.UID) map[string][]v1.ResourceStatus
	// changed gets a value when who holds what may have changed; it is for one reader.
	changed chan struct{} // capacity 1

	mu      sync.Mutex // guards the fields below
	records map[types.UID]*record
	sources map[string]bool // from which an update has been handled
}

func newPods(node status.Node) *pods {
	return &pods{
		node: node, changed: make(chan struct{}, 1),
		records: map[types.UID]*record{}, sources: map[string]bool{},
	}
}

// get is a copy of the record.
func (p *pods) get(uid types.UID) (record, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, ok := p.records[uid]
	if !ok {
		return record{}, false
	}
	return *r, true
}

// desire adds a pod, or replaces its spec, and returns the record from before.
func (p *pods) desire(pod *v1.Pod) (before record, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, ok := p.records[pod.UID]
	if !ok {
		p.records[pod.UID] = &record{
			pod: pod, status: status.Generate(p.input(pod, v1.PodStatus{})),
		}
		return record{}, false
	}
	before = *r
	if r.stopping {
		r.again = pod
	} else {
		r.pod = pod
		signal(p.changed)
	}
	return before, true
}

// undesire marks a pod as stopping.
func (p *pods) undesire(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r, ok := p.records[uid]; ok {
		r.stopping, r.again = true, nil
	}
}

// forget drops a pod. One that is desired again starts with a new record and is returned; so is one
// that became desired while what an earlier run of the agent left of it was removed.
func (p *pods) forget(uid types.UID) (again *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, ok := p.records[uid]
	if !ok {
		return nil
	}
	delete(p.records, uid)
	signal(p.changed)
	if again = r.again; !r.stopping {
		again = r.pod
	}
	if again != nil {
		p.records[uid] = &record{
			pod: again, status: status.Generate(p.input(again, v1.PodStatus{})),
		}
	}
	return again
}

// decide records admission's outcome and its status; false: the pod is not known any more.
func (p *pods) decide(r admission.Result) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	rec, ok := p.records[r.Pod.UID]
	if !ok || rec.stopping {
		return false
	}
	rec.outcome = r.Outcome
	signal(p.changed)
	why := status.Reason{Reason: r.Reason, Message: r.Message}
	in := p.input(rec.pod, rec.status)
	switch r.Outcome {
	case admission.Wait:
		rec.status = status.Waiting(in, why)
	case admission.Reject:
		rec.status = status.Rejected(in, why)
	case admission.Admit:
		rec.status.Reason, rec.status.Message = "", ""
	}
	return true
}

// report records a status that a worker's round gave; generate gets the one before.
func (p *pods) report(uid types.UID, generate func(status.Input) v1.PodStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, ok := p.records[uid]
	if !ok {
		return
	}
	before := status.Ended(r.status.Phase)
	r.status = generate(p.input(r.pod, r.status))
	if status.Ended(r.status.Phase) != before {
		signal(p.changed)
	}
}

func (p *pods) input(pod *v1.Pod, previous v1.PodStatus) status.Input {
	in := status.Input{Pod: pod, Previous: previous, Node: p.node, Now: time.Now()}
	if p.health != nil {
		in.Devices = p.health(pod.UID)
	}
	return in
}

// list is every pod with its status, ordered by namespace and name.
func (p *pods) list() []*v1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*v1.Pod, 0, len(p.records))
	for _, r := range p.records {
		pod := *r.pod // the spec is shared, and never written to
		pod.Status = r.status
		out = append(out, &pod)
	}
	slices.SortFunc(out, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.UID, b.UID))
	})
	return out
}

// active lists the pods that hold resources of the node: admitted and not at their end.
func (p *pods) active() []*v1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*v1.Pod
	for _, r := range p.records {
		if r.outcome == admission.Admit && !status.Ended(r.status.Phase) {
			out = append(out, r.pod)
		}
	}
	return out
}

// known reports whether a source desires the pod or its removal is under way.
func (p *pods) known(uid types.UID) bool {
	_, ok := p.get(uid)
	return ok
}

// see marks a source as handled; saw reports whether one was.
func (p *pods) see(source string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sources[source] = true
}

func (p *pods) saw(source string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sources[source]
}
