package playground

import (
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/numalet/numalet/agent/placement/assigned"
)

// least is how narrow a column of the live table may become. Cells that are wider are cut.
var least = map[string]int{
	"POD": 22, "CONTAINER": 9, "PHASE": 9, "CPUS": 10, "MEM": 4, "DEVICES": 12, "NUMA": 4, "ALIGNED": 7, "WHY": 14,
}

// leaves lists the columns that narrow windows do without, one more each time.
var leaves = []string{"MEM", "ALIGNED", "NUMA", "CONTAINER", "PHASE"}

// column is a column of the live table.
type column struct {
	name         string
	index, width int // of the cell in Cells
}

// grid is the live table: a line for each row, at most as wide as the window.
type grid struct {
	columns []column
	gap     int
	rows    []assigned.Row
}

// gridOf chooses the columns and their widths. All rows count, also those out of view, so that the
// columns stay while the user scrolls.
func gridOf(rows []assigned.Row, width int) grid {
	natural := make([]int, len(headers))
	for i, name := range headers {
		natural[i] = lipgloss.Width(name)
	}
	for _, r := range rows {
		for i, cell := range Cells(r) {
			natural[i] = max(natural[i], lipgloss.Width(cell))
		}
	}
	for without := range len(leaves) + 1 {
		g, needed, wanted := grid{rows: rows, gap: 1}, -1, -1
		for i, name := range headers {
			if indexOf(leaves[:without], name) >= 0 {
				continue
			}
			g.columns = append(g.columns, column{name, i, natural[i]})
			needed += min(natural[i], least[name]) + 1
			wanted += natural[i] + 1
		}
		if needed > width && without < len(leaves) {
			continue
		}
		if wanted+len(g.columns)-1 <= width {
			g.gap = 2
		}
		g.narrow(wanted - width)
		return g
	}
	return grid{} // the loop's last round returns
}

func indexOf(names []string, name string) int {
	for i, n := range names {
		if n == name {
			return i
		}
	}
	return -1
}

// narrow takes so much of the width away, each time from the column that is most above its least
// width.
func (g grid) narrow(by int) {
	for ; by > 0; by-- {
		most, at := 0, -1
		for i, c := range g.columns {
			if above := c.width - least[c.name]; above > most {
				most, at = above, i
			}
		}
		if at < 0 {
			return
		}
		g.columns[at].width--
	}
}

// head returns the line with the names, and the rule below it.
func (g grid) head(width int) []string {
	names, total := make([]string, len(headers)), 0
	for _, c := range g.columns {
		names[c.index] = c.name
		total += c.width + g.gap
	}
	bold := func(column) lipgloss.Style { return lipgloss.NewStyle().Bold(true) }
	return []string{g.line(names, bold, width),
		lipgloss.NewStyle().Foreground(lipgloss.Color("240")).Render(strings.Repeat("─", min(width, total)))}
}

// show returns the lines of count rows from the first on; the selected one is marked.
func (g grid) show(first, count, selected, width int) (out []string) {
	for i := first; i < min(first+count, len(g.rows)); i++ {
		r := g.rows[i]
		cells := Cells(r)
		if i > first && i != selected && samePod(g.rows[i-1], r) {
			cells[0] = "" // the line above has it
		}
		out = append(out, g.line(cells, func(c column) lipgloss.Style {
			if i == selected {
				return lipgloss.NewStyle().Reverse(true)
			}
			return lipgloss.NewStyle().Foreground(shade(r, c.name))
		}, width))
	}
	return out
}

func (g grid) line(cells []string, style func(column) lipgloss.Style, width int) string {
	var b strings.Builder
	for _, c := range g.columns {
		text := cut(cells[c.index], c)
		text += strings.Repeat(" ", c.width-lipgloss.Width(text)+g.gap)
		b.WriteString(style(c).Render(text))
	}
	return ansi.Truncate(b.String(), width, "")
}

// cut shortens a cell to its column's width. Names of pods that were made from a template differ at their
// ends, which stay.
func cut(text string, c column) string {
	const end = 6
	if over := lipgloss.Width(text) - c.width; over > 0 && c.name == "POD" && c.width > 2*end {
		return ansi.Truncate(text, c.width-end-1, "") + "…" + ansi.TruncateLeft(text, lipgloss.Width(text)-end, "")
	}
	return ansi.Truncate(text, c.width, "…")
}
