package eni

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// Facts are what is known of a host at one time.
type Facts struct {
	Interfaces []Interface `json:"interfaces"`
	// Routes are the indexes of the interfaces that default routes lead over.
	Routes []int `json:"routes,omitempty"`
}

// Choice is what becomes of one interface that a rule is for.
type Choice struct {
	Interface Interface
	Rule      Rule
	// Refusal says why it is not offered all the same; empty when it is.
	Refusal string
}

// Own are the interfaces that the node itself lives on, by id, with the reason of each.
type Own map[string]string

// ownOf finds what the node lives on: what default routes lead over, what has one of its addresses,
// and what is beneath these.
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

// spread says of what is beneath the interfaces in why that it is: what a vlan is on, and the parts
// of a bridge or bond.
func spread(f Facts, why map[int]string) {
	names := map[int]string{}
	for _, i := range f.Interfaces {
		names[i.Link.Index] = i.Link.State.Name
	}
	for grown := true; grown; { // as often as interfaces are stacked
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

// Choose says of each interface that a rule is for whether it is offered; the first rule counts.
// They are in the order of their ids. While it is not known what the node lives on, own is empty,
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

// refusal says why an interface cannot be handed out; above is the name of one that is on it.
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
