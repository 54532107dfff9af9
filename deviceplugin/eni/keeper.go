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

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// keeper keeps the book: it looks at the host, hands interfaces out and brings them back. What it
// does under its lock is asked of the kernel and the disk alone.
type keeper struct {
	host      Host
	rules     []Rule
	addresses []netip.Addr
	move      Move
	store     store
	log       *log.Logger

	mu   sync.Mutex
	book Book
	home map[string]Interface
	// own is what the node has lived on since the plugin began: a default route that is gone for
	// a moment makes no device of the node's interface.
	own  Own
	said map[string]string // by what it is about, what was logged last
}

// offer is one resource's devices, and the interfaces that they are.
type offer struct {
	devices    []*v1beta1.Device
	interfaces []Interface
}

// look follows what has changed. What is offered is told beside an error too, since the health of
// devices does not wait for a disk.
func (k *keeper) look(pods sightOfPods) (map[string]offer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.lookLocked(pods)
	if k.home == nil {
		return nil, err // nothing was seen yet
	}
	for _, id := range k.book.ids() {
		if k.book[id].Phase == Returning {
			k.returnLocked(id)
		}
	}
	err = errors.Join(err, k.lookLocked(sightOfPods{})) // as what was brought back is now
	return k.offersLocked(), err
}

// resources are those that rules are for, each once.
func (k *keeper) resources() (names []string) {
	for _, r := range k.rules {
		if !slices.Contains(names, r.Resource) {
			names = append(names, r.Resource)
		}
	}
	return names
}

// busy reports whether a container has an interface, or has left one.
func (k *keeper) busy() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.book {
		if r.Phase != Free {
			return true
		}
	}
	return false
}

// lookLocked makes the book say what is seen.
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
	for _, c := range choices {
		if c.Refusal != "" {
			k.sayLocked(c.Interface, "is not offered: "+c.Refusal)
		}
	}
	return k.keepLocked(k.book.next(sight{
		choices: choices, home: k.home, present: k.host.present, pods: pods, used: k.usedLocked,
	}))
}

// usedLocked reports whether a container may use an interface of whose pod the agent does not tell.
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
	k.sayOnceLocked(i, "use", what)
	return what != ""
}

// keepLocked writes a book down, and then believes it.
func (k *keeper) keepLocked(next Book) error {
	if reflect.DeepEqual(next, k.book) {
		return nil
	}
	if err := k.store.save(next); err != nil {
		return err
	}
	k.book = next
	return nil
}

// offersLocked are the devices of each resource.
func (k *keeper) offersLocked() map[string]offer {
	offers := map[string]offer{}
	for _, resource := range k.resources() {
		offers[resource] = offer{}
	}
	for _, id := range k.book.ids() {
		r := k.book[id]
		trouble := r.health(k.home, k.host.present)
		if trouble == "" {
			k.sayLocked(r.Home, "is healthy, of "+r.Resource)
		} else {
			k.sayLocked(r.Home, "is unhealthy: "+trouble)
		}
		o, wanted := offers[r.Resource]
		if !wanted {
			continue // it was offered under another configuration, and is still in use
		}
		o.devices = append(o.devices, device(r, trouble))
		o.interfaces = append(o.interfaces, r.Home)
		offers[r.Resource] = o
	}
	return offers
}

// reasons are why interfaces are unhealthy, by id.
func (k *keeper) reasons(ids []string) map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := map[string]string{}
	for _, id := range ids {
		if r, known := k.book[id]; known {
			if trouble := r.health(k.home, k.host.present); trouble != "" {
				out[id] = trouble
			}
		}
	}
	return out
}

// sayLocked logs what is new about an interface.
func (k *keeper) sayLocked(i Interface, what string) { k.sayOnceLocked(i, "", what) }

// sayOnceLocked logs what is new about something of an interface; empty: nothing is to be said.
func (k *keeper) sayOnceLocked(i Interface, of, what string) {
	if key := of + i.ID; k.said[key] != what {
		k.said[key] = what
		if what != "" {
			k.log.Printf("%s (%s) %s", i.ID, i.Link.State.Name, what)
		}
	}
}

// allocate hands interfaces of a resource out. What their last container has left is removed first:
// the agent gives devices away again when it is gone.
func (k *keeper) allocate(resource string, ids []string) (*v1beta1.ContainerAllocateResponse,
	error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.readyLocked(ids); err != nil {
		return nil, err
	}
	next := maps.Clone(k.book)
	var all []Interface
	for _, id := range ids {
		r := next[id]
		r.Phase, r.Since, r.Seen, r.Missed = Handed, time.Now().UTC(), false, time.Time{}
		next[id] = r
		all = append(all, r.Home)
	}
	if err := k.keepLocked(next); err != nil {
		return nil, err
	}
	return answer(resource, all, k.move)
}

// released brings interfaces back whose pod is gone, and says what is in the way of that. One that
// is not handed out is back already.
func (k *keeper) released(ids []string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	for _, id := range ids {
		r, known := k.book[id]
		if !known || r.Phase == Free {
			continue
		}
		next := maps.Clone(k.book)
		r.Phase = Returning
		next[id] = r
		if err := k.keepLocked(next); err != nil {
			errs = append(errs, err)
			continue
		}
		k.returnLocked(id)
		if r, known = k.book[id]; known && r.Phase != Free {
			errs = append(errs, fmt.Errorf("interface %s: %s", id,
				cmp.Or(r.Problem, "it could not be brought back")))
		}
	}
	return errors.Join(errs...)
}

// prepare makes interfaces ready for a container that starts, maybe not for the first time: the one
// before is gone, and what it had is in the pod's network namespace.
func (k *keeper) prepare(ids []string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.readyLocked(ids)
}

// readyLocked brings interfaces back that are not free.
func (k *keeper) readyLocked(ids []string) error {
	for _, id := range ids {
		r, known := k.book[id]
		if !known {
			return fmt.Errorf("interface %s is not there any more", id)
		}
		if r.Phase == Free {
			continue
		}
		if err := k.bring(r); err != nil {
			return fmt.Errorf("interface %s: %w", id, err)
		}
	}
	return nil
}

// returnLocked tries to bring back what no container has any more.
func (k *keeper) returnLocked(id string) {
	next := maps.Clone(k.book)
	r := next[id]
	err := k.bring(r)
	switch {
	case err == nil:
		k.sayLocked(r.Home, "is back from a container, as it was before")
		r = Record{Resource: r.Resource, Home: r.Home, Phase: Free}
		next[id] = r
	case errors.Is(err, errNowhere) && r.Home.Hardware.PCI == "":
		delete(next, id) // software's went with the network namespace
	default:
		r.Problem = err.Error()
		next[id] = r
	}
	if err := k.keepLocked(next); err != nil {
		k.log.Print(err)
	}
}

// bring has an interface at home, as it was.
func (k *keeper) bring(r Record) error {
	now, names, err := k.find(r.Home)
	if err == nil && now == nil {
		if err = k.host.mover.Fetch(r.Home); err == nil {
			now, names, err = k.find(r.Home)
		}
	}
	if err != nil {
		return err
	}
	if now == nil {
		return errNowhere
	}
	holder, taken := names[r.Home.Link.State.Name]
	for _, s := range steps(r.Home.Link.State, now.Link, taken && holder != now.Link.Index) {
		err = errors.Join(err, k.host.mover.Apply(now.Link.Index, s))
	}
	return err
}

// find looks for an interface at home, and for who has which name there.
func (k *keeper) find(i Interface) (*Interface, map[string]int, error) {
	facts, err := k.host.facts()
	if err != nil {
		return nil, nil, err
	}
	names := map[string]int{}
	for _, f := range facts.Interfaces {
		names[f.Link.State.Name] = f.Link.Index
	}
	at := slices.IndexFunc(facts.Interfaces, func(f Interface) bool { return i.is(f) })
	if at < 0 {
		return nil, names, nil
	}
	return &facts.Interfaces[at], names, nil
}

// is reports whether an interface at home is this one. One that has no hardware has its index there,
// unless that was taken when it came back.
func (i Interface) is(f Interface) bool {
	if i.Hardware.PCI != "" {
		return i.ID == f.ID
	}
	return i.Link.Kind == f.Link.Kind && i.Link.Index == f.Link.Index || i.same(f.Link)
}

// present reports whether the hardware beneath an interface is there, if there is any.
func (h Host) present(i Interface) bool {
	return i.Hardware.PCI == "" || h.sysfs.present(i.Hardware.PCI)
}
