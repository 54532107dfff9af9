package check

import (
	"fmt"
	"slices"
	"strings"
)

// Part is a check as Select sees it.
type Part struct {
	Group, Name string
	// Needs names other checks.
	Needs []string
}

// Select returns the names of the checks that are wanted, by their names or groups, and of those that
// they need. Without any wanted it returns all. The error names what there is.
func Select(all []Part, wanted []string) (map[string]bool, error) {
	out := map[string]bool{}
	var add func(p Part)
	add = func(p Part) {
		if out[p.Name] {
			return
		}
		out[p.Name] = true
		for _, need := range all {
			if slices.Contains(p.Needs, need.Name) {
				add(need)
			}
		}
	}
	var names []string
	for _, p := range all {
		if len(wanted) == 0 || slices.Contains(wanted, p.Name) || slices.Contains(wanted, p.Group) {
			add(p)
		}
		if !slices.Contains(names, p.Group) {
			names = append(names, p.Group)
		}
	}
	for _, p := range all {
		names = append(names, p.Name)
	}
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("there is no check or group of checks %q; there are %s", name,
				strings.Join(names, ", "))
		}
	}
	return out, nil
}

// parts returns the table for Select.
func parts() (out []Part) {
	for _, g := range table() {
		for _, c := range g.checks {
			out = append(out, Part{g.name, c.name, c.needs})
		}
	}
	return out
}

// known returns an error for names that are of no check.
func known(wanted []string) error {
	_, err := Select(parts(), wanted)
	return err
}

// selected returns the table with the wanted checks.
func selected(wanted []string) []group {
	names, _ := Select(parts(), wanted) // known was called before
	all := table()
	for i := range all {
		all[i].checks = slices.DeleteFunc(all[i].checks, func(c check) bool { return !names[c.name] })
	}
	return all
}
