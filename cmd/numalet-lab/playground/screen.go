package playground

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/assigned"
)

// screen is the terminal view.
type screen struct {
	look          func() picture
	headline      string
	hints         []hint
	width, height int
	now           picture
}

// picture holds what there is to see at a moment.
type picture struct {
	rows    []assigned.Row
	short   []string // what the node is short of
	wrong   []string // problems of manifests and device plugins
	free    []string // one line for each resource
	brief   string   // free in a few words
	happens []v1.Event
}

// look takes a picture. It leaves out what the agent does not answer within a refresh.
func (v viewer) look() picture {
	now := picture{
		rows: v.agent.Placements(), short: v.agent.Pressure(), wrong: lines(v.agent.Problems()),
		happens: v.agent.Events(),
	}
	ctx, cancel := context.WithTimeout(context.Background(), refresh)
	defer cancel()
	free, err := v.agent.Free(ctx)
	if err != nil {
		return now
	}
	var brief []string
	for _, supply := range free {
		now.free = append(now.free, "free: "+supply.String())
		brief = append(brief, supply.Brief())
	}
	if len(brief) > 0 {
		now.brief = "free: " + strings.Join(brief, "; ")
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

// The blocks of a page, from top to bottom.
const (
	titleAt = iota
	hintsAt
	tableAt
	notesAt
	freeAt
	eventsAt
	footAt
)

// page lays out the picture. If the window is too low for all of it, events go first. If that is
// not enough, texts are shortened, and the reasons, the hints and the free resources take
// precedence over the table.
func (s screen) page() string {
	blocks := s.blocks()
	total := len(slices.Concat(blocks...))
	if s.height > 0 && total-len(blocks[eventsAt]) > s.height {
		s.shorten(blocks)
		clip(blocks, []int{titleAt, footAt, hintsAt, notesAt, freeAt, tableAt, eventsAt}, s.height)
	} else if s.height > 0 {
		clip(blocks, []int{titleAt, footAt, notesAt, tableAt, freeAt, hintsAt, eventsAt}, s.height)
	}
	return strings.Join(slices.Concat(blocks...), "\n")
}

// shorten replaces the blocks by versions with fewer lines.
func (s screen) shorten(blocks [][]string) {
	blocks[titleAt] = truncate([]string{lipgloss.NewStyle().Bold(true).Render(s.headline)}, s.width)
	blocks[notesAt] = nil
	for _, note := range s.reasons() {
		blocks[notesAt] = append(blocks[notesAt], note.lines(s.width, 2)...)
	}
	blocks[freeAt] = nil
	if s.now.brief != "" {
		blocks[freeAt] = reason{text: s.now.brief}.lines(s.width, 3)
	}
	blocks[hintsAt] = nil
	asks := "" // the first command that fits the width
	for _, h := range s.hints {
		if h.brief != "" {
			blocks[hintsAt] = append(blocks[hintsAt], faint([]string{h.brief}, s.width)...)
		} else if asks == "" {
			asks = h.short(s.width)
		}
	}
	if asks != "" {
		blocks[hintsAt] = append(blocks[hintsAt], faint([]string{asks}, 0)...)
	}
	t := blocks[tableAt] // drop the table's outer borders
	blocks[tableAt] = t[min(1, len(t)):max(1, len(t)-1)]
}

// reason says why something is not as it should be.
type reason struct {
	text  string
	wrong bool // of the node, a manifest or a plugin, for the user to correct
}

// reasons returns what the node is short of, which may be why pods are as they are, the reasons of
// pods, and the problems of manifests and plugins.
func (s screen) reasons() (out []reason) {
	for _, text := range s.now.short {
		out = append(out, reason{text, true})
	}
	for _, note := range Notes(s.now.rows) {
		out = append(out, reason{text: note})
	}
	for _, text := range s.now.wrong {
		out = append(out, reason{text, true})
	}
	return out
}

// lines wraps the reason at width columns. most limits the number of lines; 0 means no limit.
func (r reason) lines(width, most int) []string {
	lines := wrap(r.text, width)
	if most > 0 && len(lines) > most {
		lines = append(lines[:most-1:most-1],
			ansi.Truncate(strings.Join(lines[most-1:], " "), width, "..."))
	}
	if !r.wrong {
		return faint(lines, 0)
	}
	return styled(lipgloss.NewStyle().Foreground(lipgloss.Red), lines)
}

// blocks returns what is shown if there is room for everything.
func (s screen) blocks() [][]string {
	now, width := s.now, s.width
	var why []string
	for _, note := range s.reasons() {
		why = append(why, note.lines(width, 0)...)
	}
	title := styled(lipgloss.NewStyle().Bold(true), wrap(s.headline, width))
	var hints []string
	for _, h := range s.hints {
		hints = append(hints, faint(h.lines(width), 0)...)
	}
	return [][]string{
		titleAt: title, hintsAt: hints,
		tableAt: strings.Split(Table(now.rows, width), "\n"),
		notesAt: why, freeAt: truncate(faint(now.free, 0), width),
		eventsAt: truncate(happened(now.happens, max(s.height, 12)/3), width),
		footAt:   faint([]string{summary(now.rows) + "   q quits"}, width),
	}
}

// clip shortens the blocks until they have at most height lines together. Blocks that come first in
// order keep their lines. A block that is cut ends with the number of missing lines.
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

// cut truncates each line to the width.
func truncate(lines []string, width int) []string {
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, width, "...")
	}
	return lines
}

// happened returns the last events, one line each.
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
