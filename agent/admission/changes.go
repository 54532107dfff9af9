package admission

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/deviceplugin"
	"github.com/numalet/numalet/topology/podspec"
)

// changes are what has happened since the pods that wait were looked at last.
type changes struct {
	// poked: anything may have changed that handlers look at.
	poked bool
	// freed: something was given back, held or claimed.
	freed bool
	// stays: a pod that only the store knew of is desired, and will not give back what it holds.
	stays bool
	// machine: it is another one.
	machine bool
	// devices are the resources of which plugins say something else.
	devices sets.Set[string]
}

// look replaces the view. What is different is a change, but for the first view.
func (c *changes) look(view *view, next view) {
	before := *view
	*view = next
	if before.hardware.Machine == nil {
		return // no pod was decided on before
	}
	c.machine = c.machine || next.hardware.Machine != before.hardware.Machine
	c.devices = c.devices.Union(differing(before.inventory, next.inventory))
}

// differing names the resources of which not both say the same, as far as plans look at it.
func differing(before, after deviceplugin.Inventory) sets.Set[string] {
	out := sets.Set[string]{}
	for name, a := range after.Resources {
		b, known := before.Resources[name]
		if !known || a.Connected != b.Connected || a.Problem != b.Problem ||
			a.Arriving != b.Arriving || a.Options.Preferred != b.Options.Preferred ||
			a.Generation != b.Generation {
			out.Insert(name)
		}
	}
	for name := range before.Resources {
		if _, known := after.Resources[name]; !known {
			out.Insert(name)
		}
	}
	for _, refused := range []map[string]string{before.Refused, after.Refused} {
		for name := range refused {
			if before.Refused[name] != after.Refused[name] {
				out.Insert(name)
			}
		}
	}
	return out
}

// requeue queues the pods that what has happened may concern, and reports whether there are any.
// Those whose time is over are queued too, or rejected.
func (a *admitter) requeue(c changes, now time.Time) (found bool) {
	var f *free
	if c.freed || c.devices.Len() > 0 {
		f = freeIn(a.cfg.snapshot(a.view, a.pods.ledger))
	}
	if c.machine {
		found = a.recheck()
	}
	for _, e := range a.pods.order {
		concerned, expired := a.concerns(c, f, e), a.expired(e, now)
		switch {
		case expired && (e.state == retrying || e.state == deferred):
			a.reject(e, e.tries.refusal)
		case concerned, expired && e.state == waiting:
			a.pods.move(e, transition(e.state, change), e.has)
		default:
			continue
		}
		found = true
	}
	return found
}

// concerns reports whether what has happened may change something for a pod. It is asked in the
// order of arrival.
func (a *admitter) concerns(c changes, f *free, e *entry) bool {
	all := c.stays || c.machine
	switch e.state {
	case waiting, brief:
		// To be asked of each of them, in order.
		fits := f != nil && f.mayHold(e)
		if all || fits || e.wants(c.devices) && !a.indifferent(e) {
			return true
		}
		nobody := e.told.last.Reason == ReasonWaitResources &&
			a.pods.ledger.Pods(allocation.Goes) == 0
		return c.freed && (nobody || e.state == brief)
	case behind:
		return all || !a.isBehind(e)
	case retrying:
		return all || e.wants(c.devices)
	case deferred:
		return all || c.poked || c.freed
	case heldBack:
		return all || c.freed || e.wants(c.devices)
	case admitted:
		return e.wants(c.devices) && e.isShort()
	}
	return false
}

// recheck takes from the pods that wait what they would not be given on the machine as it is now,
// such as a thread of a core whose other thread has come online. They look for a place again in the
// order of arrival. What plugins answered goes too: Allocate is called again. It reports whether
// there are any.
func (a *admitter) recheck() (found bool) {
	for _, e := range a.pods.order {
		if e.runs || a.view.sound(e.pod, e.has.pod) {
			continue
		}
		switch e.state {
		case queued, waiting, brief, retrying:
			a.pods.give(e, queued, reservation{kind: claim})
			found = true
		}
	}
	return found
}

// demandOf is what the pod requests of the node as it is.
func (c *Config) demandOf(pod *v1.Pod) demand {
	return demandOf(pod, c.Hardware().CPUs)
}

// sound reports whether each container of the pod might be given these CPUs on the machine as it is
// now.
func (v view) sound(pod *v1.Pod, p allocation.Pod) bool {
	if v.hardware.CPUs == nil {
		return true
	}
	cpus := v.hardware.CPUs.For(podspec.CPURules(pod))
	for _, c := range p.Containers {
		if !cpus.Whole(c.CPUs) {
			return false
		}
	}
	return true
}

// withoutAway is the pod without the answers of plugins that are away: where pods do not wait, one that
// does not run any more is started by what its plugins say now, as by the kubelet.
func (v view) withoutAway(p allocation.Pod) allocation.Pod {
	away := func(d allocation.DeviceSet) bool { return !v.inventory.Resources[d.Resource].Connected }
	for name, c := range p.Containers {
		if slices.ContainsFunc(c.Devices, away) {
			p.Containers = maps.Clone(p.Containers)
			c.Devices = slices.Clone(c.Devices)
			for i := range c.Devices {
				if away(c.Devices[i]) {
					c.Devices[i].Answer = nil
				}
			}
			p.Containers[name] = c
		}
	}
	return p
}

// indifferent reports whether other devices change nothing for a pod without room: it waits for
// what terminating pods hold, and its claim is good.
func (a *admitter) indifferent(e *entry) bool {
	if e.told.last.Reason != ReasonWaitResources {
		return false
	}
	own, _ := a.pods.ledger.Get(e.pod.UID)
	for name, ids := range own.Assigned.Devices {
		r := a.view.inventory.Resources[name]
		if !r.Connected {
			return false
		}
		for id := range ids {
			if d, found := r.Find(id); !found || !d.Healthy {
				return false
			}
		}
	}
	return true
}
