package eni

import (
	"cmp"
	"errors"
	"fmt"
	"log"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/internal/complaint"
)

// keeper owns the records: it looks at the host, hands interfaces out and brings them back. Under its
// lock it waits only for the kernel and the disk.
type keeper struct {
	host      Host
	rules     []Rule
	addresses []netip.Addr
	move      Move
	store     store

	mu      sync.Mutex
	records Records
	home    map[string]Interface
	// refused says why interfaces at home are not offered.
	refused map[string]string
	// listed has the resources of which device plugins list devices, by the devices' ids, if claims
	// get the interfaces.
	listed map[string]string
	// own holds every interface that the node has needed since the plugin began: a default route
	// that is gone for a moment does not make the node's interface a device.
	own  Own
	news news
}

// news logs what is new of an interface.
type news struct {
	log  *log.Logger
	said map[string]*complaint.Complaint[string] // by subject
}

// say logs what is new of one subject of an interface; empty: there is nothing to say.
func (n news) say(i Interface, of, what string) {
	key := of + i.ID
	if n.said[key] == nil {
		n.said[key] = &complaint.Complaint[string]{}
	}
	if n.said[key].Begins(what) {
		n.log.Printf("%s (%s) %s", i.ID, i.Link.State.Name, what)
	}
}

// offer holds a resource's devices, and their interfaces.
type offer struct {
	devices    []*v1beta1.Device
	interfaces []Interface
	troubles   []string // of each; "": it is healthy
}

// look follows changes. It returns the offers even beside an error: the health of devices does not
// wait for a disk.
func (k *keeper) look(pods sightOfPods) (map[string]offer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.lookLocked(pods)
	if k.home == nil {
		return nil, err // nothing was seen yet
	}
	for _, id := range k.records.ids() {
		if k.records[id].Phase == Returning {
			k.returnLocked(id)
		}
	}
	err = errors.Join(err, k.lookLocked(sightOfPods{})) // sees what was brought back
	return k.offersLocked(), err
}

// offered returns the resources of rules, each once.
func offered(rules []Rule) (names []string) {
	for _, r := range rules {
		if !slices.Contains(names, r.Resource) {
			names = append(names, r.Resource)
		}
	}
	return names
}

// resources returns all resources that containers may have: the offered ones, and those on
// record.
func (k *keeper) resources() sets.Set[string] {
	names := sets.New(offered(k.rules)...)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.records {
		names.Insert(r.Resource)
	}
	return names
}

// busy reports whether a container has an interface, or has left one that is not back yet.
func (k *keeper) busy() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.records {
		if r.Phase != Free {
			return true
		}
	}
	return false
}

// lookLocked updates the records from the host.
func (k *keeper) lookLocked(pods sightOfPods) error {
	facts, err := k.host.facts()
	if err != nil {
		return err
	}
	k.home = map[string]Interface{}
	for _, i := range facts.Interfaces {
		k.home[i.ID] = i
	}
	maps.Copy(k.own, ownOf(facts, k.addresses))
	choices := Choose(facts, k.rules, k.own)
	k.refused = map[string]string{}
	for at := range choices {
		c := &choices[at]
		if by := cmp.Or(k.listed[c.Interface.ID], k.listed[c.Interface.Hardware.PCI]); by != "" {
			c.Refusal = cmp.Or(c.Refusal, "the device plugin of "+by+" lists it")
		}
		if c.Refusal != "" {
			k.refused[c.Interface.ID] = c.Refusal
			k.news.say(c.Interface, "", "is not offered: "+c.Refusal)
		}
	}
	return k.keepLocked(k.records.next(sight{
		choices: choices, home: k.home, present: k.host.present, pods: pods, used: k.usedLocked,
	}))
}

// usedLocked reports whether a container may use an interface whose pod the agent does not know.
func (k *keeper) usedLocked(i Interface) bool {
	pid, err := k.host.mover.User(i)
	what := ""
	switch {
	case err != nil:
		what = fmt.Sprintf("stays where it is: %v", err)
	case pid != 0:
		what = fmt.Sprintf("stays where it is, though the agent does not tell of its pod: process %d "+
			"is in the same network namespace", pid)
	}
	k.news.say(i, "use", what)
	return what != ""
}

// keepLocked writes records to disk, then adopts them.
func (k *keeper) keepLocked(next Records) error {
	if reflect.DeepEqual(next, k.records) {
		return nil
	}
	if err := k.store.save(next); err != nil {
		return err
	}
	k.records = next
	return nil
}

// offersLocked returns the devices of each resource.
func (k *keeper) offersLocked() map[string]offer {
	offers := map[string]offer{}
	for _, resource := range offered(k.rules) {
		offers[resource] = offer{}
	}
	for _, id := range k.records.ids() {
		r := k.records[id]
		trouble := r.health(k.home, k.host.present)
		if trouble == "" {
			k.news.say(r.Home, "", "is healthy, of "+r.Resource)
		} else {
			k.news.say(r.Home, "", "is unhealthy: "+trouble)
		}
		k.leftLocked(r)
		o, wanted := offers[r.Resource]
		if !wanted {
			continue // it was offered under another configuration, and is still in use
		}
		o.devices = append(o.devices, device(r, trouble))
		o.interfaces, o.troubles = append(o.interfaces, r.Home), append(o.troubles, trouble)
		offers[r.Resource] = o
	}
	return offers
}

// leftLocked logs that the runtime has not moved an interface into a container that was to start.
func (k *keeper) leftLocked(r Record) {
	_, atHome := k.home[r.Home.ID]
	what := ""
	if r.Phase == Handed && atHome && !r.Prepared.IsZero() && time.Since(r.Prepared) > movedWithin {
		what = fmt.Sprintf("is still on the host, though its container was to start %s ago: the "+
			"container runtime has not moved it. That takes runc 1.4 (runc features shows "+
			"netDevices), a runtime that knows CDI 1.1, and a pod without hostNetwork",
			movedWithin)
	}
	k.news.say(r.Home, "left", what)
}

// reasons returns why interfaces are unhealthy, by id.
func (k *keeper) reasons() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.records.texts(func(r Record) string { return r.health(k.home, k.host.present) })
}

// places returns the PCI addresses of interfaces.
func (k *keeper) places() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.records.texts(func(r Record) string { return r.Home.Hardware.PCI })
}

func (r Records) texts(of func(Record) string) map[string]string {
	out := map[string]string{}
	for id, one := range r {
		out[id] = of(one)
	}
	return out
}

// allocate hands out interfaces of a resource. pod is a UID, empty if unknown.
func (k *keeper) allocate(resource string, ids []string, pod string) (
	*v1beta1.ContainerAllocateResponse, error) {
	all, err := k.hand(ids, pod)
	if err != nil {
		return nil, err
	}
	return answer(resource, all, k.move)
}

// hand hands out interfaces to a pod or a claim. It first brings back what the last container left:
// the agent gives devices away again once that container is gone.
func (k *keeper) hand(ids []string, to string) ([]Interface, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range ids {
		if err := k.backLocked(id); err != nil {
			return nil, err
		}
	}
	// An interface offered a moment ago may carry the default route now, or have another name.
	if err := k.lookLocked(sightOfPods{}); err != nil {
		return nil, err
	}
	return k.handLocked(ids, to)
}

// handLocked records the new holder of interfaces; all must be at home.
func (k *keeper) handLocked(ids []string, pod string) (all []Interface, err error) {
	next := maps.Clone(k.records)
	for _, id := range ids {
		r, known := next[id]
		_, atHome := k.home[id]
		switch {
		case k.refused[id] != "":
			return nil, fmt.Errorf("interface %s is not offered any more: %s", id, k.refused[id])
		case !known:
			return nil, fmt.Errorf("interface %s is not there any more", id)
		case !atHome:
			return nil, fmt.Errorf("interface %s: %s", id, r.health(k.home, k.host.present))
		}
		r.Phase, r.Pod, r.Since, r.Seen, r.Missed = Handed, pod, time.Now().UTC(), false, time.Time{}
		next[id] = r
		all = append(all, r.Home)
	}
	return all, k.keepLocked(next)
}

// released brings back the interfaces of a pod that is gone, and returns what prevents that. An
// interface that is free, or handed to another pod since, is back already.
func (k *keeper) released(ids []string, pod string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	for _, id := range ids {
		if has := k.records[id].Pod; pod == "" || has == "" || has == pod {
			errs = append(errs, k.backLocked(id))
		}
	}
	return errors.Join(errs...)
}

// leaveLocked begins to bring back an interface that is not free; each look goes on with it.
func (k *keeper) leaveLocked(id string) error {
	r, known := k.records[id]
	if !known || r.Phase == Free {
		return nil
	}
	r.Phase = Returning
	if err := k.keepLocked(k.records.with(id, r)); err != nil {
		return err
	}
	k.returnLocked(id)
	return nil
}

// backLocked brings back an interface that is not free.
func (k *keeper) backLocked(id string) error {
	if err := k.leaveLocked(id); err != nil {
		return err
	}
	if r, known := k.records[id]; known && r.Phase != Free {
		return fmt.Errorf("interface %s: %s", id, cmp.Or(r.Problem, "it could not be brought back"))
	}
	return nil
}

// prepare makes interfaces ready for a container that starts, perhaps again: after the container
// before it, they may still be in the pod's network namespace.
func (k *keeper) prepare(ids []string, pod string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range ids {
		r, known := k.records[id]
		if !known {
			return fmt.Errorf("interface %s is not there any more", id)
		}
		if r.Phase == Free { // a plugin whose records are lost handed it out
			if _, err := k.handLocked([]string{id}, pod); err != nil {
				return err
			}
			r = k.records[id]
		}
		named, err := k.host.bring(r.Home, k.records.mayBe(r.Home))
		if err == nil && !named { // the runtime would move the one that has the name
			err = fmt.Errorf("another interface is %s now: give that one another name",
				r.Home.Link.State.Name)
		}
		if err != nil {
			return fmt.Errorf("interface %s: %w", id, err)
		}
		r.Prepared = time.Now()
		if err := k.keepLocked(k.records.with(id, r)); err != nil {
			return err
		}
	}
	return nil
}
