package fit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/assigned"
	"github.com/numalet/numalet/agent/placement/explain"
	"github.com/numalet/numalet/internal/flatjson"
)

// MaxCopies bounds the copies in a question.
const MaxCopies = 10000

// Question describes which pods to place.
type Question struct {
	// Pods have distinct UIDs.
	Pods []*v1.Pod
	// Copies is how often to place all the pods, at least 1.
	Copies int
	// Most asks for as many copies as fit, up to Copies.
	Most bool
	// Ask asks a plugin for its preference; nil: plugins are not asked.
	Ask decide.Ask
	// Claims are the pods' resource claims; nil: none is known.
	Claims *Claims
	// Standing has by UID the pods that run already: the question is what would become of their resizes. Copies
	// of them are other pods.
	Standing map[types.UID]decide.Standing
}

// ParseCount parses the number of copies: a number, "max" for as many as fit, "" for one.
func ParseCount(text string) (Question, error) {
	switch text {
	case "":
		return Question{Copies: 1}, nil
	case "max":
		return Question{Copies: MaxCopies, Most: true}, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > MaxCopies {
		return Question{}, fmt.Errorf("count %q: want a number from 1 to %d, or max", text,
			MaxCopies)
	}
	return Question{Copies: n}, nil
}

// Answer says what would happen to the pods.
type Answer struct {
	// Fits is set if everything asked for would be admitted or resized or, with Most, at least one copy.
	Fits bool `json:"fits"`
	// Copies is how many copies of all the pods, of Asked, would be admitted together.
	Copies int  `json:"copies"`
	Asked  int  `json:"asked"`
	Most   bool `json:"most,omitempty"`
	// Pods lists the pods in order, up to the first copy that is not admitted as a whole.
	Pods     []Pod    `json:"pods"`
	Warnings []string `json:"warnings,omitempty"`
}

// Pod says what would happen to one pod. Its JSON includes the record.
type Pod struct {
	Record explain.Record `json:"-"`
	// Copy is the number of the copy, starting at 1.
	Copy int `json:"copy"`
	// Containers lists those that would hold anything exclusively.
	Containers []Container `json:"containers,omitempty"`
	// Resize is set for a pod that runs.
	Resize *Resize `json:"resize,omitempty"`
	// Notes say what the answer leaves open.
	Notes []string `json:"notes,omitempty"`
	// Text is the answer as text.
	Text string `json:"text"`
}

// besides is a Pod without MarshalJSON.
type besides Pod

// MarshalJSON writes the pod as one object.
func (p Pod) MarshalJSON() ([]byte, error) { return flatjson.Marshal(p.Record, besides(p)) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (p *Pod) UnmarshalJSON(text []byte) error {
	return flatjson.Unmarshal(text, &p.Record, (*besides)(p))
}

// Container says what one container would hold.
type Container struct {
	Name    string              `json:"name"`
	CPUs    string              `json:"cpus,omitempty"`
	Devices map[string][]string `json:"devices,omitempty"`
	// MemoryNodes are the nodes that its memory would come from.
	MemoryNodes string `json:"memoryNodes,omitempty"`
	// NUMANodes are the nodes of its CPUs, memory and devices. Aligned is set if that is one node.
	// They are empty and null if nothing has a node.
	NUMANodes string `json:"numaNodes,omitempty"`
	Aligned   *bool  `json:"aligned,omitempty"`
}

// Place answers the question. It places pods in order, each beside the earlier ones that would be
// admitted. The error is ctx's.
func Place(ctx context.Context, s decide.Snapshot, q Question) (Answer, error) {
	out := Answer{Asked: q.Copies, Most: q.Most, Pods: []Pod{}}
	for out.Copies < q.Copies {
		whole := true
		for _, pod := range q.Pods {
			if err := ctx.Err(); err != nil {
				return out, fmt.Errorf("place copy %d of %d: %w", out.Copies+1, q.Copies, err)
			}
			if out.Copies > 0 {
				pod = pod.DeepCopy()
				pod.UID = types.UID(fmt.Sprintf("%s-%d", pod.UID, out.Copies))
			}
			var answer Pod
			s, answer = q.place(s, pod, out.Copies+1)
			whole = whole && answer.fits()
			out.Pods = append(out.Pods, answer)
		}
		if !whole {
			break
		}
		out.Copies++
	}
	out.Fits = out.Copies == q.Copies || q.Most && out.Copies > 0
	return out, nil
}

// place answers about one pod, and returns the snapshot with it if it fits.
func (q Question) place(s decide.Snapshot, pod *v1.Pod, number int) (decide.Snapshot, Pod) {
	if st, runs := q.Standing[pod.UID]; runs && q.Copies == 1 && !q.Most {
		return resize(s, st, pod)
	}
	claims, notes := q.Claims.of(pod)
	d := s.DryRun(pod, claims, q.Ask)
	answer := describe(d, number, notes)
	if answer.fits() {
		s = s.With(d)
	}
	return s, answer
}

// fits reports whether the pod would be admitted, or resized.
func (p Pod) fits() bool {
	return p.Record.Outcome == string(decide.Admit) || p.Record.Outcome == string(decide.Resized)
}

// describe describes the decision on the copy of that number; notes are of its claims.
func describe(d decide.Decision, number int, notes []string) Pod {
	p := Pod{Record: d.Record(), Copy: number, Notes: notes}
	if p.fits() {
		p.Containers = containers(machine.Hardware{
			Machine: d.Case.Room.Machine, CPUs: d.Case.Room.CPUs, Memory: d.Case.Room.Memory,
		}, d.Pod, d.Held)
	}
	for _, name := range d.Unasked {
		p.Notes = append(p.Notes, fmt.Sprintf("the device plugin of %s prefers some devices over "+
			"others and was not asked; the choice among them may come out otherwise", name))
	}
	p.Text = p.text()
	return p
}

// containers lists the containers that would hold anything exclusively.
func containers(h machine.Hardware, pod *v1.Pod, held allocation.Pod) []Container {
	var out []Container
	for _, row := range assigned.Rows(assigned.Input{
		Hardware: h, Pods: []*v1.Pod{pod},
		Assigned: allocation.State{Pods: map[types.UID]allocation.Pod{pod.UID: held}},
	}) {
		if !row.Exclusive && len(row.Devices) == 0 && row.MemoryNodes == "" {
			continue
		}
		out = append(out, Container{
			Name: row.Container, CPUs: row.CPUs, Devices: row.Devices, MemoryNodes: row.MemoryNodes,
			NUMANodes: row.NUMANodes, Aligned: row.Aligned,
		})
	}
	return out
}

func (p Pod) text() string {
	var b strings.Builder
	b.WriteString(p.Record.Text())
	if len(p.Containers) > 0 {
		b.WriteString("\nWhere it would be\n")
	}
	for _, c := range p.Containers {
		fmt.Fprintf(&b, "  %s: %s\n", c.Name, c.where())
	}
	for _, note := range p.Notes {
		fmt.Fprintf(&b, "\nNote: %s.\n", note)
	}
	return b.String()
}

func (c Container) where() string {
	switch {
	case c.Aligned == nil:
		return "on no NUMA node in particular"
	case *c.Aligned:
		return "all on NUMA node " + c.NUMANodes
	}
	return "spread over NUMA nodes " + c.NUMANodes
}

// Text formats the answer.
func (a Answer) Text() string {
	var b strings.Builder
	if a.Asked == 1 && !a.Most {
		a.writeEach(&b)
	} else {
		a.writeCopies(&b)
	}
	for _, w := range a.Warnings {
		fmt.Fprintf(&b, "\nWarning: %s\n", w)
	}
	return b.String()
}

// writeEach describes every pod.
func (a Answer) writeEach(b *strings.Builder) {
	admitted := 0
	for i, p := range a.Pods {
		if i > 0 {
			b.WriteString("\n---\n\n")
		}
		b.WriteString(p.Text)
		if p.fits() {
			admitted++
		}
	}
	if len(a.Pods) > 1 {
		fmt.Fprintf(b, "\n---\n\n%d of %d pods fit, each beside those before it.\n",
			admitted, len(a.Pods))
	}
}

// writeCopies says how many copies fit, where they would be, and why no more fit.
func (a Answer) writeCopies(b *strings.Builder) {
	switch {
	case a.Most && a.Copies == a.Asked:
		fmt.Fprintf(b, "%d copies fit; more were not tried.\n", a.Copies)
	case a.Most && a.Copies == 1:
		b.WriteString("1 copy fits.\n")
	case a.Most:
		fmt.Fprintf(b, "%d copies fit.\n", a.Copies)
	default:
		fmt.Fprintf(b, "%d of %d copies fit.\n", a.Copies, a.Asked)
	}
	if a.Copies > 0 {
		b.WriteString("\n")
	}
	a.writePlaces(b)
	if last := a.ending(); last != nil {
		fmt.Fprintf(b, "\nWhy not one more:\n\n%s", last.Text)
	}
	var notes []string
	for _, p := range a.Pods {
		if p.Copy > a.Copies {
			continue
		}
		for _, note := range p.Notes {
			if !slices.Contains(notes, note) {
				notes = append(notes, note)
				fmt.Fprintf(b, "\nNote: %s.\n", note)
			}
		}
	}
}

// writePlaces says where the copies would be, those that would get the same in one line.
func (a Answer) writePlaces(b *strings.Builder) {
	type place struct{ pod, what string }
	var order []place
	copies := map[place][]int{}
	for _, p := range a.Pods {
		if p.Copy > a.Copies {
			continue
		}
		at := place{p.Record.Subject.Namespace + "/" + p.Record.Subject.Name, p.inShort()}
		if copies[at] == nil {
			order = append(order, at)
		}
		copies[at] = append(copies[at], p.Copy)
	}
	for _, at := range order {
		if all := copies[at]; len(all) == 1 {
			fmt.Fprintf(b, "  copy %d of %s: %s\n", all[0], at.pod, at.what)
		} else {
			fmt.Fprintf(b, "  copies %s of %s: each %s\n", cpuset.New(all...), at.pod, at.what)
		}
	}
}

// Blocked returns the resource that blocked the pod, "" if none is known.
func (p Pod) Blocked() string {
	if p.Record.Blocking == nil {
		return ""
	}
	return p.Record.Blocking.Resource
}

// ending returns the first pod without a place.
func (a Answer) ending() *Pod {
	for i, p := range a.Pods {
		if !p.fits() {
			return &a.Pods[i]
		}
	}
	return nil
}

// inShort says in one line what the pod would get.
func (p Pod) inShort() string {
	if len(p.Containers) == 0 {
		return "shares CPUs"
	}
	var parts []string
	for _, c := range p.Containers {
		parts = append(parts, fmt.Sprintf("%s has %s, %s", c.Name, c.gets(), c.where()))
	}
	return strings.Join(parts, "; ")
}

// gets lists what the container would hold. Memory beside CPUs goes without saying.
func (c Container) gets() string {
	var got []string
	if c.CPUs != "" {
		got = append(got, "CPUs "+c.CPUs)
	}
	if c.CPUs == "" && c.MemoryNodes != "" {
		got = append(got, "memory of nodes "+c.MemoryNodes)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Devices)) {
		got = append(got, name+" "+strings.Join(c.Devices[name], ","))
	}
	return strings.Join(got, " and ")
}
