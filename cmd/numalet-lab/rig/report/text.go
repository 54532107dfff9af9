package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/numalet/numalet/cmd/numalet-lab/rig"
	"github.com/numalet/numalet/internal/terminal"
)

// textWidth is the width of tables, which fits most terminals.
const textWidth = 98

// WriteText writes a report for a terminal.
func WriteText(w io.Writer, r rig.Report) error {
	var b strings.Builder
	for _, line := range headlines(r) {
		fmt.Fprintln(&b, line)
	}
	for _, t := range tables(r) {
		fmt.Fprintf(&b, "\n%s\n", t.Title)
		t.writeText(&b)
	}
	fmt.Fprintln(&b)
	for _, m := range measures(r) {
		fmt.Fprintln(&b, wrap(fmt.Sprintf("%-10s  %s", m.Name, m.Meaning), 12))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// headlines returns the lines that say what was measured.
func headlines(r rig.Report) []string {
	m, work := r.Machine, r.Workload
	lines := []string{fmt.Sprintf("machine   %s (%s)", m.Name, m.From)}
	for _, line := range machine(m) {
		lines = append(lines, "          "+line)
	}
	lines = append(lines, "workload  "+workload(work))
	if work.About != "" {
		lines = append(lines, "          "+work.About)
	}
	if r.Command != "" {
		lines = append(lines, wrap("command   "+r.Command, 10))
	}
	if r.Version != "" {
		lines = append(lines, "version   "+r.Version)
	}
	if r.Interrupted {
		lines = append(lines, "", interrupted)
	}
	return lines
}

// interrupted is the warning in a report of an interrupted run.
const interrupted = "INTERRUPTED: under each policy another number of pods has come; " +
	"do not compare counts."

// machine returns a line about the hardware, and one about the devices if there are any.
func machine(m rig.MachineInfo) []string {
	kept := m.ReservedCPUs + " reserved"
	if m.IsolatedCPUs != "" {
		kept += ", " + m.IsolatedCPUs + " isolated"
	}
	lines := []string{fmt.Sprintf("%s, %s, %s, %s (%s), %s memory",
		count(m.Sockets, "socket"), count(len(m.Nodes), "NUMA node"), count(m.Cores, "core"),
		count(m.CPUs, "CPU"), kept, bytesOf(m.MemoryBytes))}
	if len(m.Devices) > 0 {
		var devices []string
		for _, d := range m.Devices {
			devices = append(devices, fmt.Sprintf("%d %s", d.Count, d.Resource))
		}
		lines = append(lines, strings.Join(devices, ", "))
	}
	return lines
}

func workload(w rig.Workload) string {
	text := fmt.Sprintf("%s: %s over %s", w.Name, count(w.Pods, "pod"), span(w.Span))
	if w.Seed != nil {
		text += fmt.Sprintf(", seed %d", *w.Seed)
	}
	if w.Wait > 0 {
		text += fmt.Sprintf("; a pod waits up to %s for a place", span(w.Wait))
	}
	return text
}

// table is shown in both forms. The first Words columns hold words, the others numbers.
type table struct {
	Title string
	Words int
	Head  []string
	Rows  [][]string
}

func (t table) writeText(w io.Writer) {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	head := make([]string, len(t.Head))
	for i, h := range t.Head {
		head[i] = strings.ToUpper(h)
	}
	for _, row := range append([][]string{head}, t.Rows...) {
		fmt.Fprintln(tab, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	tab.Flush() //nolint:errcheck // it writes to memory
}

func tables(r rig.Report) []table {
	out := []table{summary(r)}
	if t := settings(r); len(t.Rows) > 0 {
		out = append(out, t)
	}
	if t := reasons(r); len(t.Rows) > 0 {
		out = append(out, t)
	}
	for _, t := range []table{pools(r), resizes(r), unresized(r), shifts(r)} {
		if len(t.Rows) > 0 {
			out = append(out, t)
		}
	}
	return append(out, resources(r), shapes(r))
}

func summary(r rig.Report) table {
	t := table{
		Title: "Policies side by side", Words: 1,
		Head: []string{"policy", "admitted", "rejected", "aligned", "nodes", "distance"},
	}
	if r.Interrupted {
		t.Head = slices.Insert(t.Head, 1, "came")
	}
	waits, timed, pairs := r.Workload.Wait > 0, false, false
	for _, o := range r.Policies {
		timed = timed || o.Timing != nil
		pairs = pairs || o.Placement.Pairs > 0
	}
	if pairs {
		t.Head = append(t.Head, "paired")
	}
	if waits {
		t.Head = append(t.Head, "waited", "mean wait")
	}
	if timed {
		t.Head = append(t.Head, "p50", "p99")
	}
	for _, o := range r.Policies {
		p := o.Placement
		row := []string{
			o.Policy, fmt.Sprintf("%d (%s)", o.Pods.Admitted, percent(o.Pods.AdmittedShare)),
			fmt.Sprint(o.Pods.Rejected),
		}
		if r.Interrupted {
			row = slices.Insert(row, 1, fmt.Sprint(o.Pods.Arrived))
		}
		row = append(row, placed(p)...)
		if pairs {
			row = append(row, fmt.Sprintf("%d of %d", p.SwitchPairs, p.Pairs))
		}
		if waits {
			row = append(row, fmt.Sprint(o.Pods.Waited), span(o.Pods.MeanWait))
		}
		if o.Timing != nil {
			row = append(row, micros(o.Timing.P50), micros(o.Timing.P99))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// placed returns the cells of the columns aligned, nodes and distance.
func placed(p rig.Placement) []string {
	if p.Placed == 0 {
		return []string{"-", "-", "-"}
	}
	return []string{
		percent(p.AlignedShare), fmt.Sprintf("%.2f", p.MeanNodes),
		fmt.Sprintf("%.1f", p.MeanDistance),
	}
}

// settings lists the settings of policies from files: their names do not tell them.
func settings(r rig.Report) table {
	t := table{
		Title: "Policies that were read from files", Words: 3,
		Head: []string{"policy", "setting", "value"},
	}
	for _, o := range r.Policies {
		s := o.Settings
		if s.From == "" {
			continue
		}
		pods := fmt.Sprintf("%.1f CPUs, %s memory", float64(s.AllocatableMillis)/1000,
			bytesOf(uint64(s.AllocatableBytes)))
		if s.MaxPods > 0 {
			pods += fmt.Sprintf(", at most %d pods together", s.MaxPods)
		}
		t.Rows = append(t.Rows,
			[]string{o.Policy, "read from", s.From},
			[]string{o.Policy, "topology manager",
				words(s.TopologyManager+", scope "+s.Scope, s.TopologyOptions)},
			[]string{o.Policy, "CPU manager", words(s.CPUManager, s.CPUOptions)},
			[]string{o.Policy, "memory manager", s.MemoryManager},
			[]string{o.Policy, "for pods", pods},
		)
		if s.PodLevel {
			t.Rows = append(t.Rows, []string{o.Policy, "feature gate", "PodLevelResourceManagers"})
		}
		if s.ReservedCPUs != "" {
			t.Rows = append(t.Rows, []string{o.Policy, "reserved CPUs", s.ReservedCPUs})
		}
		if s.IsolatedCPUs != "" {
			t.Rows = append(t.Rows, []string{o.Policy, "isolated CPUs", s.IsolatedCPUs})
		}
	}
	return t
}

// words joins a policy and its options.
func words(policy string, options []string) string {
	return strings.Join(append([]string{policy}, options...), " + ")
}

func reasons(r rig.Report) table {
	t := table{
		Title: "Rejected pods, by reason", Words: 3,
		Head: []string{"policy", "reason", "short of", "pods"},
	}
	for _, o := range r.Policies {
		for _, reason := range o.Reasons {
			t.Rows = append(t.Rows, []string{
				o.Policy, reason.Reason, cmp.Or(reason.Of, "-"), fmt.Sprint(reason.Count),
			})
		}
	}
	return t
}

// pools says how many containers have CPUs of their own, share those of their pods' pools, or the node's. It is
// empty if no policy knows pools.
func pools(r rig.Report) table {
	t := table{
		Title: "Containers, by the CPUs that they run on", Words: 1,
		Head: []string{"policy", "own", "pod's", "node's"},
	}
	if !podLevel(r) {
		return t
	}
	for _, o := range r.Policies {
		by := o.Placement.ByCPUs
		t.Rows = append(t.Rows, []string{o.Policy, fmt.Sprint(by.Own), fmt.Sprint(by.Pod), fmt.Sprint(by.Node)})
	}
	return t
}

// podLevel reports whether a policy knows pods with pod-level resources.
func podLevel(r rig.Report) bool {
	return slices.ContainsFunc(r.Policies, func(o rig.Outcome) bool { return o.Settings.PodLevel })
}

func resources(r rig.Report) table {
	t := table{
		Title: "Resources, averaged over time", Words: 2,
		Head: []string{"resource", "policy", "used", "fragmented", "stranded"},
	}
	if len(r.Policies) == 0 {
		return t
	}
	for i, first := range r.Policies[0].Resources {
		for _, o := range r.Policies {
			use := o.Resources[i]
			t.Rows = append(t.Rows, []string{
				first.Resource, o.Policy, percent(use.Used), optional(use.Fragmentation),
				optional(use.Stranded),
			})
		}
	}
	return t
}

// mostShapes bounds the kinds of pods in a table; a trace may have thousands.
const mostShapes = 12

// frequent returns the kinds of pods that arrived most often, in the order of the workload.
func frequent(r rig.Report) []int {
	if len(r.Policies) == 0 {
		return nil
	}
	all := r.Policies[0].Shapes
	var places []int
	for i, s := range all {
		if s.Arrived > 0 {
			places = append(places, i)
		}
	}
	slices.SortStableFunc(places, func(a, b int) int { return all[b].Arrived - all[a].Arrived })
	places = places[:min(mostShapes, len(places))]
	slices.Sort(places)
	return places
}

func shapes(r rig.Report) table {
	t := table{
		Title: "Kinds of pods", Words: 2,
		Head: []string{"kind", "policy", "came", "admitted", "aligned"},
	}
	places := frequent(r)
	for _, i := range places {
		for _, o := range r.Policies {
			s := o.Shapes[i]
			t.Rows = append(t.Rows, []string{
				s.Name, o.Policy, fmt.Sprint(s.Arrived),
				percent(s.AdmittedShare), fmt.Sprint(s.Aligned),
			})
		}
	}
	if len(r.Policies) > 0 && len(places) < len(r.Policies[0].Shapes) {
		t.Title += fmt.Sprintf(" (the most frequent %d of %d)",
			len(places), len(r.Policies[0].Shapes))
	}
	return t
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if stem, ok := strings.CutSuffix(what, "y"); ok {
		return fmt.Sprintf("%d %sies", n, stem)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

func optional(share *float64) string {
	if share == nil {
		return "-"
	}
	return percent(*share)
}

func micros(us float64) string {
	if us >= 1000 {
		return fmt.Sprintf("%.2f ms", us/1000)
	}
	return fmt.Sprintf("%.0f µs", us)
}

func bytesOf(n uint64) string {
	if n >= 1<<30 {
		return fmt.Sprintf("%.0f GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
}

// span formats a duration.
func span(seconds float64) string {
	switch {
	case seconds >= 1000*86400:
		return fmt.Sprintf("%.1f years", seconds/86400/365)
	case seconds >= 100*3600:
		return fmt.Sprintf("%.1f days", seconds/86400)
	case seconds >= 3600:
		return fmt.Sprintf("%.1f hours", seconds/3600)
	case seconds >= 100:
		return fmt.Sprintf("%.1f minutes", seconds/60)
	}
	return time.Duration(seconds * 1e9).Round(time.Millisecond).String()
}

// wrap breaks a line and indents all lines but the first.
func wrap(line string, indent int) string { return terminal.Fold(line, 0, indent, textWidth) }
