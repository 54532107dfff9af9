package fit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/topology/podspec"
)

// Resize says what would become of the resize of a pod that runs.
type Resize struct {
	// Outcome is Done, Deferred or Infeasible.
	Outcome string `json:"outcome"`
	// Changes say what the pod asks for in place of what it has; none: it has that.
	Changes []string `json:"changes,omitempty"`
	// Lack is the reason with which a pod would be rejected for the same lack of room.
	Lack string `json:"lack,omitempty"`
	// Rule is why it is infeasible, as metrics name it.
	Rule string `json:"rule,omitempty"`
	// Expected: a deferred resize has room once the pods are gone that are ending, or that make way.
	Expected bool `json:"expected,omitempty"`
	// MakeWay lists the pods that would end for it.
	MakeWay []string `json:"makeWay,omitempty"`
}

const resizeDone = "Done"

// resize answers about a pod that runs, and returns the snapshot in which it is resized if it can be.
func resize(s decide.Snapshot, st decide.Standing, asked *v1.Pod) (decide.Snapshot, Pod) {
	d := s.DryResize(st)
	z := &Resize{Outcome: cmp.Or(d.Reason, resizeDone), Changes: changes(st.Pod, st.Wants.Pod), Lack: d.Lack,
		Rule: d.Rule, Expected: d.Expected}
	for _, uid := range d.Victims {
		e, _ := s.Ledger.Get(uid)
		z.MakeWay = append(z.MakeWay, e.Name)
	}
	p := Pod{Record: s.Explain(st, d), Copy: 1, Resize: z, Notes: doubts(st.Pod, st.Wants.Pod, asked)}
	if p.fits() {
		p.Containers = containers(s.Hardware, st.Wants.Pod, st.Holds(d))
		s = s.Sized(st, d)
	}
	p.Text = p.resizeText()
	return s, p
}

// doubts lists what an API server would not take of a resize.
func doubts(has, wants, asked *v1.Pod) (notes []string) {
	for c := range podspec.Containers(asked) {
		if known, _ := podspec.Find(has, c.Name); known == nil {
			notes = append(notes, fmt.Sprintf("the pod that runs has no container %s; what that asks for counts for "+
				"nothing", c.Name))
		}
	}
	if before, after := podspec.QOSClass(has), podspec.QOSClass(wants); before != after {
		notes = append(notes, fmt.Sprintf("the API server refuses this resize, since the QoS class would change from "+
			"%s to %s", before, after))
	}
	return notes
}

// changes lists the requests, limits and sizes of volumes that differ.
func changes(has, wants *v1.Pod) (out []string) {
	before, after := podspec.ResourcesOf(has), podspec.ResourcesOf(wants)
	none := &v1.ResourceRequirements{}
	if text := differing(*cmp.Or(before.Pod, none), *cmp.Or(after.Pod, none)); text != "" {
		out = append(out, "the pod as a whole: "+text)
	}
	for c := range podspec.Containers(wants) {
		if text := differing(before.Containers[c.Name], c.Resources); text != "" {
			out = append(out, c.Name+": "+text)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after.Volumes)) {
		if was, is := before.Volumes[name], after.Volumes[name]; was.Cmp(is) != 0 {
			out = append(out, fmt.Sprintf("volume %s: %s instead of %s", name, &is, &was))
		}
	}
	return out
}

func differing(before, after v1.ResourceRequirements) string {
	var parts []string
	for _, one := range []struct {
		what    string
		was, is v1.ResourceList
	}{{"requests", before.Requests, after.Requests}, {"limits", before.Limits, after.Limits}} {
		var amounts []string
		all := maps.Clone(one.was)
		if all == nil {
			all = v1.ResourceList{}
		}
		maps.Copy(all, one.is)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if was, is := one.was[name], one.is[name]; was.Cmp(is) != 0 {
				amounts = append(amounts, fmt.Sprintf("%s %s instead of %s", name, amount(is), amount(was)))
			}
		}
		if len(amounts) > 0 {
			parts = append(parts, one.what+" "+strings.Join(amounts, ", "))
		}
	}
	return strings.Join(parts, "; ")
}

func amount(q resource.Quantity) string {
	if q.IsZero() {
		return "nothing"
	}
	return q.String()
}

// resizeText is the answer about a pod that runs as text.
func (p Pod) resizeText() string {
	var b strings.Builder
	z := p.Resize
	fmt.Fprintf(&b, "Pod %s/%s runs here", p.Record.Subject.Namespace, p.Record.Subject.Name)
	switch {
	case z.Outcome == resizeDone && len(z.Changes) == 0:
		b.WriteString(", and has what it asks for\n")
	default:
		fmt.Fprintf(&b, ": its resize would be %s\n", strings.Join(slices.DeleteFunc(
			[]string{strings.ToLower(z.Outcome), z.Lack, z.Rule}, func(s string) bool { return s == "" }), ", "))
	}
	if p.Record.Message != "" {
		fmt.Fprintf(&b, "  %s\n", p.Record.Message)
	}
	z.write(&b)
	if len(p.Containers) > 0 {
		b.WriteString("\nWhat it would have\n")
	}
	for _, c := range p.Containers {
		fmt.Fprintf(&b, "  %s: %s, %s\n", c.Name, c.gets(), c.where())
	}
	for _, note := range p.Notes {
		fmt.Fprintf(&b, "\nNote: %s.\n", note)
	}
	return b.String()
}

// write says what is asked for, and when a deferred resize has room.
func (z *Resize) write(b *strings.Builder) {
	if len(z.Changes) > 0 {
		b.WriteString("\nIt asks for\n")
	}
	for _, change := range z.Changes {
		fmt.Fprintf(b, "  %s\n", change)
	}
	switch {
	case len(z.MakeWay) > 0:
		fmt.Fprintf(b, "\nOther pods would make way for it, and it has room once they are gone: %s.\n",
			strings.Join(z.MakeWay, ", "))
	case z.Expected:
		b.WriteString("\nIt has room once the pods are gone that are ending.\n")
	case z.Outcome == v1.PodReasonDeferred:
		b.WriteString("\nNo pod that is ending leaves it enough room.\n")
	}
}
