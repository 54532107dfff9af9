package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/numalet/numalet/cmd/numalet-lab/rig"
)

// resizes counts what became of resizes; it is empty if no pod was to be resized.
func resizes(r rig.Report) table {
	t := table{
		Title: "Resizes of running pods", Words: 1,
		Head: []string{"policy", "asked", "at once", "deferred", "later", "mean delay", "infeasible", "spread"},
	}
	for _, o := range r.Policies {
		z := o.Resizes
		if z == nil {
			continue
		}
		delay := "-"
		if z.Later > 0 {
			delay = span(z.MeanDelay)
		}
		t.Rows = append(t.Rows, []string{
			o.Policy, fmt.Sprint(z.Asked), fmt.Sprintf("%d (%s)", z.AtOnce, percentOf(z.AtOnce, z.Asked)),
			fmt.Sprint(z.Later + z.Replaced + z.Left + z.Waiting), fmt.Sprint(z.Later), delay,
			fmt.Sprint(z.Infeasible), fmt.Sprint(z.Spread),
		})
	}
	return t
}

func percentOf(part, of int) string { return percent(float64(part) / float64(max(of, 1))) }

// unresized lists why resizes were deferred or infeasible.
func unresized(r rig.Report) table {
	t := table{
		Title: "Resizes that were not done at once, by reason", Words: 3,
		Head: []string{"policy", "reason", "short of, or rule", "resizes"},
	}
	for _, o := range r.Policies {
		if o.Resizes == nil {
			continue
		}
		for _, reason := range o.Resizes.Reasons {
			t.Rows = append(t.Rows, []string{
				o.Policy, reason.Reason, cmp.Or(reason.Of, "-"), fmt.Sprint(reason.Count),
			})
		}
	}
	return t
}

// shifts compares the fragmentation before and after resizes.
func shifts(r rig.Report) table {
	t := table{
		Title: "Fragmentation at resizes that changed what pods have for themselves, on average", Words: 3,
		Head: []string{"resource", "policy", "pods", "resizes", "before", "after"},
	}
	for _, o := range r.Policies {
		if o.Resizes == nil {
			continue
		}
		for _, s := range o.Resizes.Fragmentation {
			change := "shrank"
			if s.Grown {
				change = "grew"
			}
			t.Rows = append(t.Rows, []string{s.Resource, o.Policy, change, fmt.Sprint(s.Resizes), percent(s.Before),
				percent(s.After)})
		}
	}
	slices.SortStableFunc(t.Rows, func(a, b []string) int { return cmp.Compare(a[0], b[0]) })
	return t
}

func resizeMeasures(r rig.Report) []measure {
	if len(resizes(r).Rows) == 0 {
		return nil
	}
	return []measure{
		{"at once", "resizes that were done when they were asked for. The others were deferred, infeasible, " +
			"or asked for what the pod had, after it had asked for something else in vain."},
		{"deferred", "resizes that waited for room; \"later\" counts those that got it, after the mean delay. " +
			"The pods of the others asked for something else before, or left, or wait still."},
		{"infeasible", "resizes that a rule of the node forbids."},
		{"spread", "resizes after which a pod was on more than one NUMA node, and had been on one."},
	}
}
