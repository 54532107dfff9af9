package explain

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/numalet/numalet/internal/oneline"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// Text returns the record as text.
func (r Record) Text() string {
	var b strings.Builder
	r.writeVerdict(&b)
	bullets(&b, "Since then", r.Remarks.Since)
	bullets(&b, "What is wrong with its device plugins", r.Remarks.Plugins)
	b.WriteString("\nIt asks for\n")
	for _, request := range r.Requests {
		fmt.Fprintf(&b, "  %s\n", request)
	}
	if len(r.Free) > 0 {
		fmt.Fprintf(&b, "\nFree %s, by NUMA node\n", r.when())
	}
	for _, s := range r.Free {
		fmt.Fprintf(&b, "  %s\n", s)
	}
	if len(r.Merges) > 0 {
		fmt.Fprintf(&b, "\nWhere it could go (%s)\n", r.Rules)
	}
	for _, m := range r.Merges {
		m.write(&b)
	}
	if r.Remarks.Ahead {
		b.WriteString("\nIn the order in which they start the containers had no place. Those that " +
			"last were placed\nfirst, and init containers where there is a place beside that.\n")
	}
	if r.Blocking != nil {
		fmt.Fprintf(&b, "\nWhat is in the way: %s\n", r.Blocking)
	}
	switch {
	case r.Reason == ReasonHeld:
		b.WriteString("The pod is looked at again as soon as that changes, and rejected when its " +
			"time is\nover: its controller would make another one at once.\n")
	case r.Outcome == "Wait" && !r.Subject.DryRun:
		b.WriteString("The pod is looked at again as soon as that changes, and rejected if " +
			"it still\ncannot be had after --device-admission-wait.\n")
	case r.Outcome == "Reject" && !r.Subject.DryRun:
		b.WriteString("A rejected pod is not looked at again: " + r.Subject.anew() + ".\n")
	}
	bullets(&b, "Any one of these changes would make it fit", r.WouldFit)
	bullets(&b, "Of what it had before", r.Remarks.Kept)
	bullets(&b, "Chosen without the device plugin's preference", r.Remarks.Ignored)
	return b.String()
}

// anew says what has a rejected pod tried again.
func (s Subject) anew() string {
	switch s.Source {
	case podspec.APISource:
		return "delete it, and create it again unless its controller does"
	case "http":
		return "have its URL answer with another one to have it tried anew"
	}
	return "touch its manifest to have it tried anew"
}

// String names the settings.
func (r Rules) String() string {
	text := fmt.Sprintf("topologyManagerPolicy: %s, topologyManagerScope: %s", r.Policy, r.Scope)
	if r.Strategy != "" {
		text += ", NUMA allocation: " + r.Strategy
	}
	if len(r.Chosen) > 0 {
		text += "; the pod chose by " + strings.Join(r.Chosen, ", ")
	}
	return text
}

// when says when resources were free: now for a pod that waits, else at the decision.
func (r Record) when() string {
	if r.Subject.DryRun || r.Outcome == "Wait" || r.At.IsZero() {
		return "now"
	}
	return "when that was decided"
}

func bullets(b *strings.Builder, title string, lines []string) {
	if len(lines) > 0 {
		fmt.Fprintf(b, "\n%s\n", title)
	}
	for _, line := range lines {
		fmt.Fprintf(b, "  - %s\n", line)
	}
}

func (r Record) writeVerdict(b *strings.Builder) {
	words := map[string]string{"Admit": "admitted", "Wait": "waiting", "Reject": "rejected"}
	if r.Subject.DryRun {
		words = map[string]string{
			"Admit": "would be admitted", "Wait": "would wait", "Reject": "would be rejected",
		}
	}
	fmt.Fprintf(b, "Pod %s/%s: %s", r.Subject.Namespace, r.Subject.Name, words[r.Outcome])
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

// Short summarizes the record in one line; empty if the message says it all.
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

// maxEvent is the longest message of an event that the API accepts, in bytes.
const maxEvent = 1024

// Event returns the text of an event: the whole message and as much of the summary as fits.
func Event(message, short string) string {
	if short == "" {
		return message
	}
	text := message + "; " + short
	if len(text) <= maxEvent {
		return text
	}
	const cut = "..."
	if text = oneline.Head(text, maxEvent-len(cut)); len(text) <= len(message) {
		return message
	}
	return text + cut
}

func (b *Blocking) String() string {
	text := label(b.Resource)
	if b.Container == "" && b.Resource == cpu {
		text = "CPUs"
	}
	if b.Container != "" {
		text = strings.TrimPrefix(text+" of container "+b.Container, " of ")
	}
	return strings.TrimPrefix(text+": "+b.Why, ": ") // of the whole pod
}

func (r Request) String() string {
	name := cmp.Or(r.Container, "the pod as a whole")
	if r.Kind != "regular" && r.Container != "" {
		name += " (" + r.Kind + ")"
	}
	if len(r.Resources)+len(r.Claims) == 0 && r.Shares == "" {
		return name + ": nothing of its own; it runs on the CPUs that are shared"
	}
	var parts []string
	if r.Shares != "" {
		parts = append(parts, r.Shares+" together with others of the pod")
	}
	for _, a := range r.Resources {
		text := amount(a.Resource, a.Count)
		if a.PaddedTo > 0 {
			text += fmt.Sprintf(", padded to %d for whole cores", a.PaddedTo)
		}
		if a.Got != "" {
			text += " (" + got(a) + ")"
		}
		if a.Foreign != "" {
			text += " (" + a.Foreign + ": no device plugin has had it)"
		}
		parts = append(parts, text)
	}
	return name + ": " + strings.Join(append(parts, r.Claims...), ", ")
}

// got says what the container got of the amount.
func got(a Amount) string {
	if isMemory(a.Resource) {
		return "gets it on " + a.Got
	}
	return "gets " + a.Got
}

// String groups nodes with equal numbers.
func (s Supply) String() string {
	if s.Away {
		return label(s.Resource) + ": none, as its device plugin is not connected"
	}
	text := fmt.Sprintf("%s: %s", label(s.Resource), s.of(s.Free, s.Total))
	if s.keptBack() {
		text += "; systemReserved, kubeReserved and evictionHard (memory.available) keep all of it back"
	}
	if parts := s.places(); len(parts) > 0 {
		text += " (" + strings.Join(parts, ", ") + ")"
	}
	if s.Unhealthy > 0 {
		text += fmt.Sprintf("; %d more not healthy", s.Unhealthy)
	}
	if s.Cordoned > 0 {
		text += fmt.Sprintf("; %d more cordoned", s.Cordoned)
	}
	if s.Claimed > 0 {
		text += fmt.Sprintf("; %d had by resource claims", s.Claimed)
	}
	for _, g := range s.Groups {
		text += fmt.Sprintf("; other pods use nodes %s as one", g)
	}
	return text
}

// Brief says how much there is, without places.
func (s Supply) Brief() string {
	if s.Away {
		return s.Resource + " none"
	}
	if s.keptBack() {
		return s.Resource + " 0 of 0 (evictionHard)"
	}
	return s.Resource + " " + s.of(s.Free, s.Total)
}

// keptBack reports whether the node has memory, as each has, and keeps all of it from pods.
func (s Supply) keptBack() bool { return s.Resource == "memory" && s.Total == 0 }

func (s Supply) of(free, total int) string {
	return fmt.Sprintf("%s of %s", number(s.Resource, free), number(s.Resource, total))
}

// places says how much there is on which nodes.
func (s Supply) places() []string {
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
		parts = append(parts, s.of(key.free, key.total)+" on "+where)
	}
	if s.Nowhere != nil {
		parts = append(parts, s.of(s.Nowhere.Free, s.Nowhere.Total)+" on no node in particular")
	}
	return parts
}

func (m Merge) write(b *strings.Builder) {
	fmt.Fprintf(b, "  %s\n", cmp.Or(m.Container, "the pod as a whole"))
	for _, o := range m.Offers {
		fmt.Fprintf(b, "    %s\n", o)
	}
	fmt.Fprintf(b, "    all together: %s\n", m.together())
}

func (m Merge) together() string {
	set, preferred := strings.CutSuffix(m.Merged, " preferred")
	switch {
	case !m.Admitted:
		return "no place that the policy allows"
	case set == "any" || set == "":
		return "anywhere"
	case !preferred:
		return nodes(set) + ", as no better place suits all"
	}
	return nodes(set)
}

func (o Offer) String() string {
	var parts []string
	if o.Any {
		parts = append(parts, "anywhere")
	}
	more := o.Placements - len(o.Preferred) - len(o.Possible)
	if len(o.Preferred) > 0 {
		parts = append(parts, "fits on "+places(o.Preferred))
	}
	switch {
	case len(o.Possible) > 0 && (o.Any || len(o.Preferred) > 0):
		wide := o.Possible[:min(len(o.Possible), wideShown)]
		more += len(o.Possible) - len(wide)
		parts = append(parts, "or spread over "+places(wide))
	case len(o.Possible) > 0:
		parts = append(parts, "fits only spread over "+places(o.Possible)+
			", more than an empty machine would need")
	}
	if len(parts) == 0 {
		parts = append(parts, "fits nowhere")
	}
	if more > 0 && !o.Any {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return label(o.Resource) + ": " + strings.Join(parts, ", ")
}

// wideShown bounds the wider places listed beside preferred ones.
const wideShown = 3

// places lists node sets: "node 0, 1 or nodes 2-3", "nodes 0-1, 0+2 or 1-3+5".
func places(sets []string) string {
	var b strings.Builder
	kind := ""
	for i, s := range sets {
		before, _, _ := strings.Cut(nodes(s), " ")
		switch {
		case i == 0:
		case i == len(sets)-1:
			b.WriteString(" or ")
		default:
			b.WriteString(", ")
		}
		if before != kind {
			b.WriteString(before + " ")
		}
		kind = before
		if len(sets) > 1 {
			s = strings.ReplaceAll(s, ",", "+") // commas separate the sets
		}
		b.WriteString(s)
	}
	return b.String()
}
