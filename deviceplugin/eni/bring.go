package eni

import (
	"errors"
	"slices"
)

// returnLocked tries to bring back an interface that no container has any more.
func (k *keeper) returnLocked(id string) {
	r := k.records[id]
	_, err := k.host.bring(r.Home, k.records.mayBe(r.Home))
	gone := errors.Is(err, errNowhere) && r.Home.Hardware.PCI == ""
	if err == nil {
		k.news.say(r.Home, "", "is back from a container, as it was before")
		r = Record{Resource: r.Resource, Home: r.Home, Phase: Free}
	} else {
		r.Problem = err.Error()
	}
	next := k.records.with(id, r)
	if gone {
		delete(next, id) // software's interface went with the network namespace
	}
	if err := k.keepLocked(next); err != nil {
		k.news.log.Print(err)
	}
}

// bring moves an interface home and restores it. An interface in no network namespace may be at home in
// disguise, as mayBe says. bring reports whether the interface also has its own name.
func (h Host) bring(home Interface, mayBe func(Interface) bool) (named bool, err error) {
	now, names, err := h.find(home.is)
	if err == nil && now == nil {
		is := home.is
		if err = h.mover.Fetch(home); errors.Is(err, errNowhere) {
			is, err = mayBe, nil
		}
		if err == nil {
			now, names, err = h.find(is)
		}
	}
	if err != nil {
		return false, err
	}
	if now == nil {
		return false, errNowhere
	}
	return h.restore(home, now.Link, names)
}

// restore makes an interface at home as it was. names has the indexes of the interfaces at home by
// name. restore reports whether the interface also has its own name.
func (h Host) restore(home Interface, now Link, names map[string]int) (named bool, err error) {
	taken := func(name string) bool {
		holder, is := names[name]
		return is && holder != now.Index
	}
	for _, s := range steps(home.Link.State, now, taken) {
		err = errors.Join(err, h.mover.Apply(now.Index, s))
	}
	return !taken(home.Link.State.Name), err
}

// find looks for an interface at home, and maps the names there to indexes.
func (h Host) find(is func(Interface) bool) (*Interface, map[string]int, error) {
	facts, err := h.facts()
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

// present reports whether the hardware of an interface exists; true if it has none.
func (h Host) present(i Interface) bool {
	return i.Hardware.PCI == "" || h.sysfs.present(i.Hardware.PCI)
}
