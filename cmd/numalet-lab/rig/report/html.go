package report

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"

	"github.com/numalet/numalet/cmd/numalet-lab/rig"
)

//go:embed assets/page.html assets/page.css assets/page.js
//go:embed assets/chart.umd.min.js assets/LICENSE.chartjs.md
var assets embed.FS

// page holds the values of the template. The file contains everything: styles, scripts, and the
// report as JSON that the charts are drawn from.
type page struct {
	Title, Command        string
	Warning               string
	Facts                 []measure
	Tables                []table
	Measures              []measure
	Findings              []string
	Style                 template.CSS
	Library, Script, Data template.JS
	License               string
}

// WriteHTML writes a report as one file for a browser.
func WriteHTML(w io.Writer, r rig.Report) error {
	var text [5]string
	for i, name := range []string{
		"page.html", "page.css", "page.js", "chart.umd.min.js", "LICENSE.chartjs.md",
	} {
		raw, err := assets.ReadFile("assets/" + name)
		if err != nil {
			return err
		}
		text[i] = string(raw)
	}
	data, err := json.Marshal(r) // escapes what could end the script element
	if err != nil {
		return err
	}
	shown, err := template.New("page").Parse(text[0])
	if err != nil {
		return err
	}
	// Without this cut the browser would look for the library's source map beside the report.
	library, _, _ := strings.Cut(text[3], "\n//# sourceMappingURL=")
	p := page{
		Title: title(r), Facts: facts(r), Tables: append(tables(r), nodes(r.Machine)),
		Measures: measures(r),
		Findings: findings(r), Style: template.CSS(text[1]), Library: template.JS(library),
		Script: template.JS(text[2]), Data: template.JS(data), License: text[4], Command: r.Command,
	}
	if r.Interrupted {
		p.Warning = interrupted
	}
	var out bytes.Buffer
	if err := shown.Execute(&out, p); err != nil {
		return err
	}
	_, err = out.WriteTo(w)
	return err
}

func title(r rig.Report) string {
	return fmt.Sprintf("%s on %s", count(len(r.Policies), "placement policy"),
		cmp.Or(r.Machine.Name, r.Machine.From))
}

func facts(r rig.Report) []measure {
	m := r.Machine
	from := m.From
	if m.Name != "" {
		from = fmt.Sprintf("%s (%s)", m.Name, m.From)
	}
	out := []measure{
		{"Machine", from}, {"", strings.Join(machine(m), ", ")}, {"Pods", workload(r.Workload)},
	}
	if r.Workload.About != "" {
		out = append(out, measure{"", r.Workload.About})
	}
	if r.Version != "" {
		out = append(out, measure{"Version", "numalet " + r.Version})
	}
	return out
}

// nodes lists the NUMA nodes with their distances to each other.
func nodes(m rig.MachineInfo) table {
	t := table{Title: "NUMA nodes", Words: 2, Head: []string{"node", "CPUs", "memory"}}
	for _, d := range m.Devices {
		t.Head = append(t.Head, d.Resource)
	}
	near := len(m.Nodes) <= mostDistances
	if near {
		for _, n := range m.Nodes {
			t.Head = append(t.Head, fmt.Sprintf("to %d", n.ID))
		}
	}
	for _, n := range m.Nodes {
		row := []string{fmt.Sprint(n.ID), n.CPUs, bytesOf(n.MemoryBytes)}
		for _, d := range m.Devices {
			row = append(row, fmt.Sprint(n.Devices[d.Resource]))
		}
		if near {
			for _, d := range n.Distances {
				row = append(row, fmt.Sprint(d))
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// mostDistances is the highest number of nodes whose distances fit on a page.
const mostDistances = 8

// findings say which policy is first in what, and which kinds of pods got nothing.
func findings(r rig.Report) []string {
	if r.Interrupted {
		return nil
	}
	if len(r.Policies) < 2 {
		return turnedAway(r)
	}
	return append(firsts(r), turnedAway(r)...)
}

// turnedAway returns a sentence for each policy that admitted no pod of some kind.
func turnedAway(r rig.Report) (out []string) {
	for _, o := range r.Policies {
		var kinds []string
		for _, s := range o.Shapes {
			if s.Arrived > 0 && s.Admitted == 0 {
				kinds = append(kinds, fmt.Sprintf("%s (0 of %d)", s.Name, s.Arrived))
			}
		}
		if len(kinds) > 0 {
			out = append(out, fmt.Sprintf("Turned away altogether by %s: %s.", o.Policy,
				strings.Join(kinds, ", ")))
		}
	}
	return out
}

// firsts returns sentences that say which policy is first in what.
func firsts(r rig.Report) []string {
	best := func(value func(rig.Outcome) float64) (names string, at float64) {
		var first []string
		for _, o := range r.Policies {
			switch v := value(o); {
			case len(first) == 0 || v > at:
				first, at = []string{o.Policy}, v
			case v == at:
				first = append(first, o.Policy)
			}
		}
		if len(first) == len(r.Policies) {
			return "all policies alike", at
		}
		return strings.Join(first, " and "), at
	}
	admits, most := best(func(o rig.Outcome) float64 { return float64(o.Pods.Admitted) })
	mostAdmitted := fmt.Sprintf("Most pods admitted: %s, with %.0f of %d.", admits, most,
		r.Workload.Pods)
	aligns, share := best(func(o rig.Outcome) float64 { return o.Placement.AlignedShare })
	total, number := best(func(o rig.Outcome) float64 { return float64(o.Placement.Aligned) })
	near, distance := best(func(o rig.Outcome) float64 {
		if o.Placement.Placed == 0 {
			return math.Inf(-1)
		}
		return -o.Placement.MeanDistance
	})
	if math.IsInf(distance, -1) {
		return []string{mostAdmitted}
	}
	return []string{
		mostAdmitted,
		fmt.Sprintf("Largest share aligned: %s, with %s of the pods admitted.", aligns,
			percent(share)),
		fmt.Sprintf("Most pods both admitted and aligned: %s, with %.0f.", total, number),
		fmt.Sprintf("Shortest distances: %s, %.1f on average.", near, -distance),
	}
}
