package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/numalet/numalet/topology"
)

// Text is the record for people.
func (r Record) Text() string {
	var b strings.Builder
	r.writeVerdict(&b)
	b.WriteString("\nIt asks for\n")
	for _, request := range r.Requests {
		fmt.Fprintf(&b, "  %s\n", request)
	}
	if len(r.Free) > 0 {
		b.WriteString("\nFree beside other pods, by NUMA node\n")
	}
	for _, s := range r.Free {
		fmt.Fprintf(&b, "  %s\n", s)
	}
	if len(r.Merges) > 0 {
		fmt.Fprintf(&b, "\nWhere it could go, under topology policy %s, scope %s\n", r.Policy, r.Scope)
	}
	for _, m := range r.Merges {
		m.write(&b)
	}
	if r.Blocking != nil {
		fmt.Fprintf(&b, "\nWhat is in the way: %s\n", r.Blocking)
	}
	if len(r.WouldFit) > 0 {
		b.WriteString("\nIt would fit (any one of these)\n")
	}
	for _, change := range r.WouldFit {
		fmt.Fprintf(&b, "  - %s\n", change)
	}
	return b.String()
}

func (r Record) writeVerdict(b *strings.Builder) {
	words := map[string]string{"Admit": "admitted", "Wait": "waiting", "Reject": "rejected"}
	fmt.Fprintf(b, "Pod %s/%s: %s", r.Namespace, r.Name, words[r.Outcome])
	if r.Reason != "" {
		fmt.Fprintf(b, ", %s", r.Reason)
	}
	if !r.At.IsZero() {
		fmt.Fprintf(b, ", at %s", r.At.Format(time.RFC3339))
	}
	b.WriteString("\n")
	if r.Message != "" {
		fmt.Fprintf(b, "  %s\n", r.Message)
	}
}

// Short is the gist in one line; empty when there is nothing to say beyond the message.
func (r Record) Short() string {
	var parts []string
	if r.Blocking != nil && !strings.Contains(r.Message, r.Blocking.Why) {
		parts = append(parts, r.Blocking.String())
	}
	if len(r.WouldFit) > 0 {
		parts = append(parts, "would fit: "+strings.Join(r.WouldFit, ", or "))
	}
	return strings.Join(parts, "; ")
}

func (b *Blocking) String() string {
	text := b.Resource
	if b.Container != "" {
		text += " of container " + b.Container
	}
	return text + ": " + b.Why
}

func (r Request) String() string {
	name := r.Container
	if r.Kind != "regular" {
		name += " (" + r.Kind + ")"
	}
	if len(r.Resources) == 0 {
		return name + ": nothing that is assigned; it shares CPUs"
	}
	var parts []string
	for _, a := range r.Resources {
		text := fmt.Sprintf("%d %s", a.Count, a.Resource)
		if a.Got != "" {
			text += " (gets " + a.Got + ")"
		}
		parts = append(parts, text)
	}
	return name + ": " + strings.Join(parts, ", ")
}

// String groups nodes with equal numbers.
func (s Supply) String() string {
	text := fmt.Sprintf("%s: %d of %d", s.Resource, s.Free, s.Total)
	type numbers struct{ free, total int }
	var order []numbers
	groups := map[numbers][]topology.NodeID{}
	for _, n := range s.Nodes {
		key := numbers{n.Free, n.Total}
		if n.Total == 0 {
			continue
		}
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], topology.NodeID(n.Node))
	}
	var parts []string
	for _, key := range order {
		where := nodes(topology.NewNodeSet(groups[key]...).String())
		if len(groups[key]) > 1 {
			where = "each of " + where
		}
		parts = append(parts, fmt.Sprintf("%d of %d on %s", key.free, key.total, where))
	}
	if s.Nowhere != nil {
		parts = append(parts, fmt.Sprintf("%d of %d on no node in particular",
			s.Nowhere.Free, s.Nowhere.Total))
	}
	if len(parts) > 0 {
		text += "; " + strings.Join(parts, ", ")
	}
	if s.Unhealthy > 0 {
		text += fmt.Sprintf("; %d unhealthy", s.Unhealthy)
	}
	return text
}

func (m Merge) write(b *strings.Builder) {
	name := m.Container
	if name == "" {
		name = "the pod as a whole"
	}
	fmt.Fprintf(b, "  %s\n", name)
	for _, o := range m.Offers {
		fmt.Fprintf(b, "    %s\n", o)
	}
	fmt.Fprintf(b, "    together: %s\n", m.together())
}

func (m Merge) together() string {
	set, preferred := strings.CutSuffix(m.Merged, " preferred")
	switch {
	case !m.Admitted:
		return "no place that the policy allows"
	case set == "any" || set == "":
		return "anywhere"
	case !preferred:
		return nodes(set) + ", for want of better"
	}
	return nodes(set)
}

func (o Offer) String() string {
	listed := len(o.Preferred) + len(o.Possible)
	var parts []string
	if o.Any {
		parts = append(parts, "anywhere")
	}
	if len(o.Preferred) > 0 {
		parts = append(parts, "at best on "+places(o.Preferred))
	}
	switch {
	case len(o.Possible) > 0 && listed > len(o.Possible):
		parts = append(parts, "else on "+places(o.Possible))
	case len(o.Possible) > 0:
		parts = append(parts, "only on "+places(o.Possible)+", more nodes than were nothing taken")
	}
	if len(parts) == 0 {
		parts = append(parts, "nowhere")
	}
	if more := o.Placements - listed; more > 0 && !o.Any {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return o.Resource + ": " + strings.Join(parts, ", ")
}

func places(sets []string) string {
	out := make([]string, len(sets))
	for i, s := range sets {
		out[i] = nodes(s)
	}
	return strings.Join(out, " or ")
}
