package playground

import (
	"context"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement"
)

// screen is the terminal view.
type screen struct {
	look                func() picture
	headline, manifests string
	hints               []string
	width, height       int
	now                 picture
}

// picture is what there is to see at a moment.
type picture struct {
	rows    []placement.Row
	wrong   []string // with manifests
	free    []string // a line for each resource
	happens []v1.Event
}

// look takes a picture. What the agent does not tell at once is left out.
func (p *Playground) look() picture {
	now := picture{
		rows: p.agent.Placements(), wrong: lines(p.agent.Problems()), happens: p.agent.Events(),
	}
	ctx, cancel := context.WithTimeout(context.Background(), refresh)
	defer cancel()
	free, err := p.agent.Free(ctx)
	if err != nil {
		return now
	}
	for _, supply := range free {
		now.free = append(now.free, "free: "+supply.String())
	}
	return now
}

func (s screen) Init() tea.Cmd { return s.again() }

func (s screen) again() tea.Cmd {
	return tea.Tick(refresh, func(time.Time) tea.Msg { return s.look() })
}

func (s screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "ctrl+c", "esc":
			return s, tea.Quit
		}
	case tea.WindowSizeMsg:
		s.width, s.height = msg.Width, msg.Height
	case picture:
		s.now = msg
		return s, s.again()
	}
	return s, nil
}

func (s screen) View() tea.View {
	view := tea.NewView("")
	if s.width > 0 {
		view = tea.NewView(s.page())
	}
	view.AltScreen = true
	return view
}

// page lays out the picture. Where the height does not do for all, the reasons stay, which matter
// most, then the table, then what is free, the hints, and what happened.
func (s screen) page() string {
	now, width, height := s.now, s.width, s.height
	warn := lipgloss.NewStyle().Foreground(lipgloss.Red)
	why := faint(Notes(now.rows), width)
	for _, text := range now.wrong {
		for line := range strings.SplitSeq(ansi.Wrap(text, width, ""), "\n") {
			why = append(why, warn.Render(line))
		}
	}
	title := strings.Split(ansi.Wrap(s.headline, width, ""), "\n")
	for i, line := range title {
		title[i] = lipgloss.NewStyle().Bold(true).Render(line)
	}
	const head, hint, table, notes, free, events, foot = 0, 1, 2, 3, 4, 5, 6
	blocks := [][]string{
		head: title, hint: faint(s.hints, width), table: strings.Split(Table(now.rows, width), "\n"),
		notes: why, free: cut(faint(now.free, 0), width),
		events: cut(happened(now.happens, max(height, 12)/3), width),
		foot:   faint([]string{summary(now.rows) + "   q quits"}, width),
	}
	if height > 0 {
		clip(blocks, []int{head, foot, notes, table, free, hint, events}, height)
	}
	var all []string
	for _, block := range blocks {
		all = append(all, block...)
	}
	return strings.Join(all, "\n")
}

// clip shortens the blocks until they have at most height lines together: those that come first in
// the order keep theirs. A block of which a part is left says how much is missing.
func clip(blocks [][]string, order []int, height int) {
	left := height
	for _, at := range order {
		block := blocks[at]
		if missing := len(block) - left; missing > 0 {
			block = block[:left:left]
			if left > 0 {
				block[left-1] = fmt.Sprintf("... %d lines more: make the window taller", missing+1)
			}
		}
		blocks[at], left = block, left-len(block)
	}
}

// cut keeps lines in one line each.
func cut(lines []string, width int) []string {
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, width, "...")
	}
	return lines
}

// happened are the last events, a line each.
func happened(events []v1.Event, most int) (out []string) {
	for _, e := range events[max(0, len(events)-most):] {
		times := ""
		if e.Count > 1 {
			times = fmt.Sprintf(" (%d times)", e.Count)
		}
		out = append(out, fmt.Sprintf("%s %s %s%s: %s", e.LastTimestamp.Format(time.TimeOnly),
			e.InvolvedObject.Name, e.Reason, times, e.Message))
	}
	return out
}
