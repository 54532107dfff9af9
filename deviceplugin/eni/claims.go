package eni

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Claims are how a driver of resource claims hands out the interfaces.
type Claims struct {
	// Follow gets what is offered after each look, sorted by id.
	Follow func([]Offer) error
	// Held returns the ids of the interfaces that claims have.
	Held func() (map[string]bool, error)
}

// Offer is an interface that is offered, or that a claim has.
type Offer struct {
	Interface
	Resource string
	// Trouble says why no pod should get it; "": it is healthy.
	Trouble string
}

func (c Claims) follow(all map[string]offer) error {
	var out []Offer
	for resource, o := range all {
		for n, i := range o.interfaces {
			out = append(out, Offer{i, resource, o.troubles[n]})
		}
	}
	slices.SortFunc(out, func(a, b Offer) int { return strings.Compare(a.ID, b.ID) })
	return c.Follow(out)
}

// follow takes the devices that plugins list. While the agent does not answer, the last ones count.
func (k *keeper) follow(listed map[string]string, err error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		k.listed = listed
	}
	return err
}

// restore makes interfaces as they were that came home although a claim has them. The network
// namespace has ended with its pod's sandbox; they go into the next one under their own names.
func (k *keeper) restore() (err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range k.records.ids() {
		r := k.records[id]
		is, atHome := k.home[id]
		if k.move != ByRuntime || r.Phase != Handed || !atHome ||
			reflect.DeepEqual(is.Link.State, r.Home.Link.State) {
			continue
		}
		now, names, findErr := k.host.find(r.Home.is)
		if findErr == nil && now != nil {
			_, findErr = k.host.restore(r.Home, now.Link, names)
		}
		err = errors.Join(err, findErr)
	}
	return err
}

// Hand hands out an interface to a claim.
func (p *Plugin) Hand(id, claim string) error {
	_, err := p.keeper.hand([]string{id}, claim)
	return err
}

// Back takes an interface back from its claim. The plugin goes on trying until the interface is as it
// was before; meanwhile it is unhealthy. Back fails only if that cannot be recorded.
func (p *Plugin) Back(id string) error {
	defer p.awake()
	p.keeper.mu.Lock()
	defer p.keeper.mu.Unlock()
	return p.keeper.leaveLocked(id)
}

// Holder returns the UID of the claim that has an interface; "": none. It reports whether the
// interface is known.
func (p *Plugin) Holder(id string) (claim string, known bool) {
	p.keeper.mu.Lock()
	defer p.keeper.mu.Unlock()
	r, known := p.keeper.records[id]
	return r.Pod, known
}

// Use is a claim's use of an interface.
type Use struct {
	ID string
	// Shared: another claim has it, and it stays where that has it.
	Shared bool
}

// Edits returns what containers get with each of a claim's interfaces. An interface that is in its
// pod's network namespace already is not moved again: containers that start there find it.
func (p *Plugin) Edits(all []Use) (out []specs.ContainerEdits, err error) {
	k := p.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	byResource := map[string][]Interface{}
	for _, u := range all {
		r, known := k.records[u.ID]
		if !known {
			return nil, fmt.Errorf("interface %s is not there any more", u.ID)
		}
		byResource[r.Resource] = append(byResource[r.Resource], r.Home)
	}
	env, err := environment(byResource)
	if err != nil {
		return nil, err
	}
	for _, u := range all {
		i := k.records[u.ID].Home
		var edits specs.ContainerEdits
		if _, atHome := k.home[u.ID]; atHome && !u.Shared && k.move == ByRuntime {
			edits = moved(i)
		}
		edits.Env = env
		for _, node := range i.Hardware.Nodes {
			edits.DeviceNodes = append(edits.DeviceNodes,
				&specs.DeviceNode{Path: node, Permissions: "rw"})
		}
		out = append(out, edits)
	}
	return out, nil
}

// environment returns the variables of all resources, in order.
func environment(byResource map[string][]Interface) (env []string, err error) {
	for _, resource := range slices.Sorted(maps.Keys(byResource)) {
		values, err := variables(resource, byResource[resource])
		if err != nil {
			return nil, err
		}
		for _, name := range slices.Sorted(maps.Keys(values)) {
			env = append(env, name+"="+values[name])
		}
	}
	return env, nil
}
