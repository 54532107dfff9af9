package playground

import (
	"cmp"
	"fmt"
	"image/color"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/assigned"
	"github.com/numalet/numalet/internal/oneline"
	"github.com/numalet/numalet/topology"
)

var headers = []string{
	"POD", "CONTAINER", "PHASE", "CPUS", "MEM", "DEVICES", "NUMA", "ALIGNED", "WHY",
}

// layouts lists the ways to draw the table, from the widest to the narrowest. Folded cells have a
// line for each device or range of CPUs.
var layouts = []struct {
	without []string
	folded  bool
}{
	{nil, false},
	{[]string{"WHY"}, false},
	{[]string{"WHY", "MEM"}, false},
	{[]string{"WHY", "MEM", "ALIGNED"}, false},
	{[]string{"WHY", "MEM", "ALIGNED"}, true},
	{[]string{"WHY", "MEM", "ALIGNED", "CONTAINER"}, true},
	{[]string{"WHY", "MEM", "ALIGNED", "CONTAINER", "NUMA"}, true},
}

// Table draws the rows for people, in colour and if possible at most width columns wide; 0 means
// unlimited. Narrow tables have fewer columns. The reasons go first, because Notes returns them.
func Table(rows []assigned.Row, width int) (text string) {
	for _, l := range layouts {
		columns := slices.DeleteFunc(slices.Clone(headers), func(column string) bool {
			return slices.Contains(l.without, column)
		})
		text = draw(rows, columns, l.folded)
		if width == 0 || lipgloss.Width(text) <= width {
			break
		}
	}
	return text
}

// fold puts each device or range of CPUs on a line; what is in parentheses stays with its device.
var fold = strings.NewReplacer(" (", " (", " ", "\n", ",", ",\n")

func draw(rows []assigned.Row, columns []string, folded bool) string {
	t := table.New().
		Border(lipgloss.NormalBorder()).BorderColumn(false).BorderLeft(false).BorderRight(false).
		BorderStyle(lipgloss.NewStyle().Foreground(lipgloss.Color("240"))).
		Headers(columns...).
		StyleFunc(func(row, col int) lipgloss.Style {
			style := lipgloss.NewStyle().Padding(0, 1)
			if row == table.HeaderRow {
				return style.Bold(true)
			}
			return style.Foreground(shade(rows[row], columns[col]))
		})
	for i, r := range rows {
		all := Cells(r)
		if i > 0 && samePod(rows[i-1], r) {
			all[0] = "" // same as above
		}
		var cells []string
		for at, column := range headers {
			if !slices.Contains(columns, column) {
				continue
			}
			cell := all[at]
			if folded && (column == "CPUS" || column == "DEVICES") {
				cell = fold.Replace(cell)
			}
			cells = append(cells, cell)
		}
		t.Row(cells...)
	}
	return t.String()
}

func samePod(a, b assigned.Row) bool { return a.Pod == b.Pod && a.Namespace == b.Namespace }

// Notes returns the reasons with their messages: one for each container that has one, or one for
// the pod if all its containers say the same.
func Notes(rows []assigned.Row) []string {
	var out []string
	for i, r := range rows {
		said := r.State.Message
		if said == "" || i > 0 && samePod(rows[i-1], r) && rows[i-1].State.Message == said {
			continue
		}
		out = append(out, fmt.Sprintf("%s: %s: %s", r.Pod, r.State.Reason, said))
	}
	return out
}

// Cells returns the row as the texts of its columns.
func Cells(r assigned.Row) []string {
	pod := r.Pod
	if r.Namespace != v1.NamespaceDefault {
		pod = r.Namespace + "/" + r.Pod
	}
	return []string{
		pod, r.Container, string(r.State.Phase), cpus(r), cmp.Or(r.MemoryNodes, "-"), devices(r),
		cmp.Or(r.NUMANodes, "-"), aligned(r.Aligned), r.State.Reason,
	}
}

// cpus shows exclusive CPUs as a list. The shared pool is long and the same for all, so only its size
// is shown.
func cpus(r assigned.Row) string {
	if r.Isolated {
		return r.CPUs + " (isolated)"
	}
	if r.Exclusive || r.CPUs == "" {
		return cmp.Or(r.CPUs, "-")
	}
	set, err := topology.ParseCPUs(r.CPUs)
	if err != nil {
		return r.CPUs
	}
	return fmt.Sprintf("shared (%d)", set.Size())
}

// uuid matches a UUID, whose first group is enough to tell two devices apart.
var uuid = regexp.MustCompile(`([0-9a-f]{8})(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// devices shows ids with what is wrong with them, like "gpu-0 gpu-1 (unhealthy)". The resource is
// left out if the ids begin with its name. Of UUIDs only the first group is shown.
func devices(r assigned.Row) string {
	var out []string
	for _, resource := range slices.Sorted(maps.Keys(r.Devices)) {
		_, name, _ := strings.Cut(resource, "/")
		for _, id := range r.Devices[resource] {
			shown := id
			if name == "" { // of a claim; the pool is mostly the node
				shown = path.Base(id)
			}
			text := uuid.ReplaceAllString(oneline.Cut(shown, 64), "$1")
			if !strings.HasPrefix(strings.ToLower(id), name) {
				text = name + ":" + text
			}
			switch health := r.DeviceHealth[resource][id]; health {
			case "":
			case v1.ResourceHealthStatusUnhealthy:
				text += " (unhealthy)"
			default:
				text += " (health unknown)"
			}
			out = append(out, text)
		}
	}
	return cmp.Or(strings.Join(out, " "), "-")
}

func aligned(a *bool) string {
	switch {
	case a == nil:
		return "-"
	case *a:
		return "yes"
	}
	return "no"
}

// shade returns the colour of a cell.
func shade(r assigned.Row, column string) color.Color {
	const green, yellow, red, grey = lipgloss.Green, lipgloss.Yellow, lipgloss.Red,
		lipgloss.BrightBlack
	switch column {
	case "PHASE":
		switch r.State.Phase {
		case v1.PodRunning:
			return green
		case v1.PodPending:
			return yellow
		case v1.PodFailed:
			return red
		case v1.PodSucceeded:
			return grey
		}
	case "ALIGNED":
		if r.Aligned != nil && *r.Aligned {
			return green
		}
		if r.Aligned != nil {
			return yellow
		}
	case "DEVICES":
		if len(r.DeviceHealth) > 0 {
			return red
		}
	case "CPUS":
		if !r.Exclusive {
			return grey
		}
	}
	return lipgloss.NoColor{}
}
