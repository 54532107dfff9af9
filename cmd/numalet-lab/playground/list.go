package playground

import (
	"cmp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/assigned"
)

// list chooses and sorts the rows of the table, and knows which one is selected and which is the
// first in view.
type list struct {
	filter string
	typing bool // keys go into the filter
	order  int  // of sorts
	// selected stays on its row while others come and go; index is where it was, in case it is gone.
	selected assigned.Key
	index    int
	first    int
}

// sorts are the ways to sort, of which the first keeps the agent's order, by name. All are stable,
// so that the containers of a pod stay together as far as the order allows.
var sorts = []struct {
	name    string
	compare func(a, b assigned.Row) int
}{
	{"name", func(a, b assigned.Row) int { return 0 }},
	{"trouble", func(a, b assigned.Row) int { return cmp.Compare(calm(a), calm(b)) }},
	{"NUMA node", func(a, b assigned.Row) int {
		return cmp.Or(cmp.Compare(last(a.NUMANodes), last(b.NUMANodes)),
			strings.Compare(a.NUMANodes, b.NUMANodes))
	}},
	{"devices", func(a, b assigned.Row) int { return cmp.Compare(held(b), held(a)) }},
}

// calm is lower for rows that need a person's attention more.
func calm(r assigned.Row) int {
	switch {
	case r.State.Phase == v1.PodFailed:
		return 0
	case len(r.DeviceHealth) > 0:
		return 1
	case r.State.Reason != "":
		return 2
	case r.State.Phase == v1.PodPending:
		return 3
	case r.State.Phase == v1.PodSucceeded:
		return 5
	}
	return 4
}

// last puts rows without the text behind those with it.
func last(text string) int {
	if text == "" {
		return 1
	}
	return 0
}

func held(r assigned.Row) (n int) {
	for _, ids := range r.Devices {
		n += len(ids)
	}
	return n
}

// rows returns the rows that the filter leaves, in order.
func (l list) rows(all []assigned.Row) []assigned.Row {
	var out []assigned.Row
	want := strings.ToLower(l.filter)
	for _, r := range all {
		if want == "" || strings.Contains(strings.ToLower(strings.Join(append(Cells(r), r.State.Message), " ")), want) {
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, sorts[l.order].compare)
	return out
}

// at returns the index of the selected row, -1 if there is no row.
func (l list) at(rows []assigned.Row) int {
	i := slices.IndexFunc(rows, func(r assigned.Row) bool { return r.Key == l.selected })
	if i < 0 {
		return min(l.index, len(rows)-1)
	}
	return i
}

// move selects the row that is by rows further down; it stops at the ends.
func (l list) move(rows []assigned.Row, by int) list {
	if len(rows) == 0 {
		return l
	}
	l.index = min(max(l.at(rows)+by, 0), len(rows)-1)
	l.selected = rows[l.index].Key
	return l
}

// window returns the first row in view if height rows are, and one of them is the selected one.
func (l list) window(rows []assigned.Row, height int) int {
	at := l.at(rows)
	first := min(l.first, at)
	if at >= first+height {
		first = at - height + 1
	}
	return max(0, min(first, len(rows)-height))
}
