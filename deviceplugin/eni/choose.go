package eni

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// Facts hold what one look saw of a host.
type Facts struct {
	Interfaces []Interface `json:"interfaces"`
	// Routes are the indexes of the interfaces of default routes.
	Routes []int `json:"routes,omitempty"`
}

// Choice is the decision about one interface that a rule matches.
type Choice struct {
	Interface Interface
	Rule      Rule
	// Refusal says why it is not offered; empty if it is.
	Refusal string
}

// Own holds the interfaces that the node itself needs: the reasons, by id.
type Own map[string]string

// ownOf finds the interfaces that the node needs: those of default routes, those with one of its
// addresses, and those beneath these.
func ownOf(f Facts, addresses []netip.Addr) Own {
	why := map[int]string{}
	for _, i := range f.Interfaces {
		if slices.Contains(f.Routes, i.Link.Index) {
			why[i.Link.Index] = "carries the default route"
		}
		for _, a := range i.Link.State.Addresses {
			if slices.Contains(addresses, a.Addr()) {
				why[i.Link.Index] = "has the node's address " + a.Addr().String()
			}
		}
	}
	spread(f, why)
	own := Own{}
	for _, i := range f.Interfaces {
		if text := why[i.Link.Index]; text != "" {
			own[i.ID] = text
		}
	}
	return own
}

// spread adds the interfaces beneath those in why: what a vlan is on, and the parts of a bridge or
// bond.
func spread(f Facts, why map[int]string) {
	names := map[int]string{}
	for _, i := range f.Interfaces {
		names[i.Link.Index] = i.Link.State.Name
	}
	for grown := true; grown; { // once for each level of stacking
		grown = false
		for _, i := range f.Interfaces {
			for _, pair := range [][2]int{
				{i.Link.Lower, i.Link.Index}, {i.Link.Index, i.Link.Master},
			} {
				beneath, above := pair[0], pair[1]
				if beneath != 0 && why[beneath] == "" && why[above] != "" {
					why[beneath] = fmt.Sprintf("is beneath %s, which %s", names[above], why[above])
					grown = true
				}
			}
		}
	}
}

// Choose decides for each interface that a rule matches whether it is offered; the first matching
// rule counts. The choices are sorted by id. While own is empty, the node's needs are not known, and
// nothing is offered.
func Choose(f Facts, rules []Rule, own Own) (choices []Choice) {
	functions, above := map[string]string{}, map[int]string{}
	for _, i := range f.Interfaces {
		if i.Hardware.Virtual > 0 {
			functions[i.Hardware.PCI] = i.Link.State.Name
		}
		if i.Link.Lower != 0 {
			above[i.Link.Lower] = i.Link.State.Name
		}
	}
	for _, i := range f.Interfaces {
		at := slices.IndexFunc(rules, func(r Rule) bool { return r.matches(i, functions) })
		if at < 0 {
			continue
		}
		choices = append(choices, Choice{i, rules[at], refusal(i, own, above[i.Link.Index])})
	}
	slices.SortFunc(choices, func(a, b Choice) int {
		return cmp.Compare(a.Interface.ID, b.Interface.ID)
	})
	return choices
}

// refusal says why an interface cannot be handed out; above names an interface on top of it.
func refusal(i Interface, own Own, above string) string {
	switch {
	case len(own) == 0:
		return "it is not known which interface the node lives on: there is no default route, " +
			"and none has an address of --node-ip"
	case own[i.ID] != "":
		return "it " + own[i.ID]
	case i.Link.Master != 0:
		return "it is part of a bridge or bond"
	case above != "":
		return above + " is on it"
	case i.Hardware.Virtual > 0:
		return fmt.Sprintf("it has %d virtual functions, which would go with it",
			i.Hardware.Virtual)
	}
	return ""
}
