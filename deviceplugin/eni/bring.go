package eni

import (
	"errors"
	"maps"
	"slices"
)

// returnLocked tries to bring back an interface that no container has any more.
func (k *keeper) returnLocked(id string) {
	next := maps.Clone(k.book)
	r := next[id]
	_, err := k.bring(r)
	switch {
	case err == nil:
		k.sayLocked(r.Home, "is back from a container, as it was before")
		r = Record{Resource: r.Resource, Home: r.Home, Phase: Free}
		next[id] = r
	case errors.Is(err, errNowhere) && r.Home.Hardware.PCI == "":
		delete(next, id) // software's interface went with the network namespace
	default:
		r.Problem = err.Error()
		next[id] = r
	}
	if err := k.keepLocked(next); err != nil {
		k.log.Print(err)
	}
}

// bring moves an interface home and restores it. It reports whether it also has its own name.
func (k *keeper) bring(r Record) (named bool, err error) {
	now, names, err := k.find(r.Home.is)
	if err == nil && now == nil {
		is := r.Home.is
		if err = k.host.mover.Fetch(r.Home); errors.Is(err, errNowhere) {
			is, err = k.mayBe(r.Home), nil
		}
		if err == nil {
			now, names, err = k.find(is)
		}
	}
	if err != nil {
		return false, err
	}
	if now == nil {
		return false, errNowhere
	}
	taken := func(name string) bool {
		holder, is := names[name]
		return is && holder != now.Link.Index
	}
	for _, s := range steps(r.Home.Link.State, now.Link, taken) {
		err = errors.Join(err, k.host.mover.Apply(now.Link.Index, s))
	}
	return !taken(r.Home.Link.State.Name), err
}

// find looks for an interface at home, and maps the names there to indexes.
func (k *keeper) find(is func(Interface) bool) (*Interface, map[string]int, error) {
	facts, err := k.host.facts()
	if err != nil {
		return nil, nil, err
	}
	names := map[string]int{}
	for _, f := range facts.Interfaces {
		for _, name := range append([]string{f.Link.State.Name}, f.Link.State.AltNames...) {
			names[name] = f.Link.Index
		}
	}
	at := slices.IndexFunc(facts.Interfaces, is)
	if at < 0 {
		return nil, names, nil
	}
	return &facts.Interfaces[at], names, nil
}

// is reports whether an interface at home is this one.
func (i Interface) is(f Interface) bool {
	if i.Hardware.PCI != "" {
		return i.ID == f.ID
	}
	return i.same(f.Link)
}

// mayBe returns a test for interfaces at home that can be one that is nowhere. If a container with
// the host's network changed the MAC address of software's interface, its index is still the same.
// But an interface of the book that came home meanwhile can have that index too.
func (k *keeper) mayBe(i Interface) func(Interface) bool {
	return func(f Interface) bool {
		if i.Hardware.PCI != "" || i.Link.Kind != f.Link.Kind || i.Link.Index != f.Link.Index {
			return false
		}
		for _, other := range k.book {
			if other.Home.same(f.Link) {
				return false
			}
		}
		return true
	}
}

// present reports whether the hardware of an interface exists; true if it has none.
func (h Host) present(i Interface) bool {
	return i.Hardware.PCI == "" || h.sysfs.present(i.Hardware.PCI)
}
