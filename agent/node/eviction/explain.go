package eviction

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

const (
	// listed is how many pods an explanation names as the next ones.
	listed = 5
	// remembered is how many of the last actions an explanation has.
	remembered = 10
)

// Explanation says what of a node is short or may be, and what was and will be done about it.
type Explanation struct {
	Node string    `json:"node"`
	At   time.Time `json:"at,omitzero"` // of the last look; zero: there was none
	// Levels are the thresholds, in the order in which they are relieved.
	Levels     []Level     `json:"levels,omitempty"`
	Conditions []Condition `json:"conditions,omitempty"`
	// Done are the last actions, the oldest first.
	Done []Done `json:"done,omitempty"`
	// Awaits is the pod, namespace/name, whose end is awaited before another one is chosen.
	Awaits string `json:"awaits,omitempty"`
	// Freeing is the evicted pod, namespace/name, that has ended, and whose room is not free yet.
	Freeing string `json:"freeing,omitempty"`
	// Next are the pods that would be evicted first for the signal Of: what is short, or nearest to it.
	Of   Signal `json:"of,omitempty"`
	Next []Next `json:"next,omitempty"`
	// More is the number of pods after those; Spared are critical ones, which are never evicted.
	More   int `json:"more,omitempty"`
	Spared int `json:"spared,omitempty"`
	// Unknown is why the next pods are not known.
	Unknown string `json:"unknown,omitempty"`
	// DriverCPUs are the CPUs that drivers of resource claims hand out, as the kernel lists them: no
	// container shares them, and none gets them by its requests. "": there are none.
	DriverCPUs string `json:"driverCPUs,omitempty"`
}

// Level is a threshold beside what is available, in the words of the resource: "100Mi".
type Level struct {
	Signal    Signal `json:"signal"`
	Available string `json:"available,omitempty"` // "": it could not be read
	Threshold string `json:"threshold,omitempty"`
	// Until is the amount available from which a threshold that was met is no longer met.
	Until string `json:"until,omitempty"`
	// Grace is how long a soft threshold is met before pods are evicted; zero: it is a hard one.
	Grace time.Duration `json:"grace,omitempty"`
	// Since is when it was met; nil: it is not.
	Since *time.Time `json:"since,omitempty"`
}

// Condition holds as long as a threshold for it is met, and until Until if none is any more.
type Condition struct {
	Type  v1.NodeConditionType `json:"type"`
	Until time.Time            `json:"until"`
}

// Done is something that was done because the signal's threshold was met.
type Done struct {
	At     time.Time `json:"at"`
	Signal Signal    `json:"signal"`
	What   string    `json:"what"`
}

// Next is a pod that may be evicted, and what puts it where it is.
type Next struct {
	Pod string `json:"pod"` // namespace/name
	Why string `json:"why"`
}

// lastLook holds the last look, for explanations.
type lastLook struct {
	at       time.Time
	readings Readings
	state    state
	nearest  *Threshold // relieved next, or nearest; nil: nothing was read
	done     []Done
}

// tell has explanations know of the last look.
func (m *Manager) tell(r Readings, v verdict, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.looked.at, m.looked.readings, m.looked.state = now, r, m.state
	m.looked.nearest = cmp.Or(v.relieve, nearest(m.cfg.Thresholds, r))
}

// did has explanations know of an action.
func (m *Manager) did(s Signal, what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	done := append(slices.Clone(m.looked.done), Done{time.Now(), s, what})
	m.looked.done = done[max(0, len(done)-remembered):]
}

func (m *Manager) last() lastLook {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.looked
}

// nearest returns the threshold of which the least part is left.
func nearest(thresholds []Threshold, r Readings) (out *Threshold) {
	least := 0.0
	for i, t := range thresholds {
		left, known := t.left(r)
		part := float64(left) / float64(max(r[t.Signal].Capacity, 1))
		if known && (out == nil || part < least) {
			out, least = &thresholds[i], part
		}
	}
	return out
}

// Explain says what is short on the node, and who is next. It may be called at any time.
func (m *Manager) Explain(ctx context.Context, node string) Explanation {
	t := m.last()
	e := m.explanation(t, node)
	if t.nearest != nil {
		e.Of = t.nearest.Signal
		if err := m.whoIsNext(ctx, &e, t.nearest); err != nil {
			e.Unknown = err.Error()
		}
	}
	return e
}

// Pressure says in a line for each condition that holds what is short. The lines change when that does,
// not with each amount.
func (m *Manager) Pressure() (out []string) {
	e := m.explanation(m.last(), "")
	for _, c := range e.Conditions {
		var short []string
		for _, l := range e.Levels {
			if l.Since != nil && kinds[l.Signal].condition == c.Type {
				short = append(short, fmt.Sprintf("%s is below %s", l.Signal,
					cmp.Or(l.Until, l.Threshold)))
			}
		}
		out = append(out, fmt.Sprintf("%s: %s", c.Type,
			cmp.Or(strings.Join(short, ", "), "nothing is short any longer")))
	}
	return out
}

// explanation is all but who is next.
func (m *Manager) explanation(t lastLook, node string) Explanation {
	e := Explanation{Node: node, At: t.at, Done: t.done}
	e.Awaits, e.Freeing = t.state.awaited()
	for i, threshold := range m.cfg.Thresholds {
		if threshold.withImages(t.readings) {
			continue
		}
		e.Levels = append(e.Levels, levelOf(threshold, t, i))
	}
	for _, kind := range []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure,
		v1.NodePIDPressure} {
		if at, holds := t.state.pressed[kind]; holds {
			e.Conditions = append(e.Conditions, Condition{kind, at.Add(m.cfg.Transition)})
		}
	}
	return e
}

func levelOf(t Threshold, as lastLook, i int) Level {
	reading, known := as.readings[t.Signal]
	l := Level{Signal: t.Signal, Grace: t.Grace}
	if known {
		show := func(value int64) string { return rounded(t.Signal.Resource(), value) }
		l.Available, l.Threshold = show(reading.Available), show(t.of(reading.Capacity, false))
		if until := show(t.of(reading.Capacity, true)); until != l.Threshold {
			l.Until = until
		}
	}
	if since, met := as.state.since[i]; met {
		l.Since = &since
	}
	return l
}

// rounded is an amount for people: bytes in whole MiB.
func rounded(name v1.ResourceName, value int64) string {
	if name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage {
		value = value >> 20 << 20
	}
	return amount(name, value)
}

// whoIsNext ranks the pods by what they use now.
func (m *Manager) whoIsNext(ctx context.Context, e *Explanation, of *Threshold) error {
	all, err := m.cfg.Measure(ctx, e.Of)
	if err != nil {
		return err
	}
	l := layoutOf(all.Summary)
	reading := Read(all.Summary, all.Host)[e.Of]
	order, spared := m.cfg.rank(all, e.Of, verdict{relieve: of, reading: reading}.need())
	e.Spared = spared
	for i := range order[:min(len(order), listed)] {
		e.Next = append(e.Next, Next{klog.KObj(order[i].Pod).String(), why(&order[i], e.Of, l)})
	}
	e.More = len(order) - len(e.Next)
	return nil
}

// why says what ranks a pod.
func why(c *Candidate, s Signal, l layout) string {
	u, name := useOf(c, s, l), s.Resource()
	if c.Stats == nil {
		return "nothing is known of what it uses"
	}
	text := "uses " + rounded(name, u.used)
	if !u.known {
		text = "uses at least " + rounded(name, u.used) + ", not all of which could be measured"
	}
	if name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage {
		text += ", requests " + rounded(name, u.requested)
		if u.used > u.requested {
			text += ": more than it requests"
		}
	} else {
		text += " " + string(name)
	}
	if held := c.Node.Bytes + c.Layers.Bytes; s.OnDisk() && held > 0 {
		text += "; holds deleted files of " + rounded(v1.ResourceEphemeralStorage, held)
	}
	text += fmt.Sprintf("; priority %d", ptr.Deref(c.Pod.Spec.Priority, 0))
	if c.Exclusive {
		text += "; has devices or CPUs of its own, so equal ones go first"
	}
	return text
}

// Text is the explanation for people.
func (e Explanation) Text() string {
	if e.At.IsZero() {
		return fmt.Sprintf("Node %s has not been looked at yet, or has no eviction thresholds\n", e.Node) +
			e.driverCPUs()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Node %s %s\n", e.Node, e.verdict())
	for _, c := range e.Conditions {
		if left := c.Until.Sub(e.At); e.short(c.Type) {
			fmt.Fprintf(&b, "%s holds\n", c.Type)
		} else {
			fmt.Fprintf(&b, "%s holds for %s more, though no threshold of it is met any longer\n", c.Type,
				duration.HumanDuration(left))
		}
	}
	b.WriteString("\n" + e.table())
	if len(e.Done) > 0 {
		b.WriteString("\nWhat was done\n")
	}
	for _, d := range e.Done {
		fmt.Fprintf(&b, "  %s ago for %s: %s\n", duration.HumanDuration(e.At.Sub(d.At)), d.Signal,
			d.What)
	}
	if e.Awaits != "" {
		fmt.Fprintf(&b, "\nThe end of %s is awaited before another pod is chosen\n", e.Awaits)
	}
	if e.Freeing != "" {
		fmt.Fprintf(&b, "\nWhat %s used is not all free yet\n", e.Freeing)
	}
	b.WriteString("\n" + e.whoText() + e.driverCPUs())
	return b.String()
}

func (e Explanation) driverCPUs() string {
	if e.DriverCPUs == "" {
		return ""
	}
	return fmt.Sprintf("\nDrivers of resource claims hand out CPUs %s (--dra-cpus); no container has them "+
		"otherwise\n", e.DriverCPUs)
}

// verdict names what is short.
func (e Explanation) verdict() string {
	short := e.ShortOf()
	if len(short) == 0 {
		return "is short of nothing"
	}
	return "is short: " + strings.Join(short, ", ")
}

// ShortOf lists the signals of the thresholds that are met.
func (e Explanation) ShortOf() []string {
	short := []string{}
	for _, l := range e.Levels {
		if name := string(l.Signal); l.Since != nil && !slices.Contains(short, name) {
			short = append(short, name)
		}
	}
	return short
}

// short reports whether a threshold for the condition is met.
func (e Explanation) short(kind v1.NodeConditionType) bool {
	return slices.ContainsFunc(e.Levels, func(l Level) bool {
		return l.Since != nil && kinds[l.Signal].condition == kind
	})
}

func (e Explanation) table() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SIGNAL\tAVAILABLE\tTHRESHOLD\tSTATE")
	for _, l := range e.Levels {
		var state []string
		switch {
		case l.Since != nil:
			met := "met for " + duration.HumanDuration(e.At.Sub(*l.Since))
			if l.Until != "" {
				met += ", until " + l.Until + " is available"
			}
			state = append(state, met)
		case l.Available == "":
			state = append(state, "could not be read")
		}
		if l.Grace > 0 {
			state = append(state, fmt.Sprintf("soft: acts when met for %v", l.Grace))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", l.Signal, cmp.Or(l.Available, "?"), cmp.Or(l.Threshold, "?"),
			strings.Join(state, "; "))
	}
	w.Flush()
	lines := strings.Split(b.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// whoText names who is next.
func (e Explanation) whoText() string {
	var b strings.Builder
	switch {
	case e.Unknown != "":
		return "Who is next is not known: " + e.Unknown + "\n"
	case e.Of == "":
		return ""
	case len(e.Next) == 0:
		return "No pod may be evicted" + e.rest() + "\n"
	case e.short(kinds[e.Of].condition):
		fmt.Fprintf(&b, "Next while %s is short\n", e.Of)
	default:
		fmt.Fprintf(&b, "Next if %s, the nearest, runs short\n", e.Of)
	}
	for i, n := range e.Next {
		fmt.Fprintf(&b, "  %d. %s: %s\n", i+1, n.Pod, n.Why)
	}
	if rest := e.rest(); rest != "" {
		fmt.Fprintf(&b, "  %s\n", strings.TrimPrefix(rest, "; "))
	}
	return b.String()
}

func (e Explanation) rest() (text string) {
	if e.More > 0 {
		text += fmt.Sprintf("; then %d more", e.More)
	}
	if e.Spared > 0 {
		text += fmt.Sprintf("; never: %d critical", e.Spared)
	}
	return text
}
