package playground

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/assigned"
)

// screen is the terminal view: the table, which scrolls, and what else there is room for; or a pane
// with a text.
type screen struct {
	// tell returns the text of a pane about a row. It may wait, and is called outside Update.
	tell          func(kind, assigned.Key) []string
	headline      string
	hints         []hint
	width, height int
	now           picture
	list          list
	pane          pane
}

// picture holds what there is to see at a moment.
type picture struct {
	rows    []assigned.Row
	short   []string // what the node is short of
	wrong   []string // problems of manifests and device plugins
	free    []string // one line for each resource
	brief   string   // free in a few words
	happens []v1.Event
	calls   []string // the last calls and answers of an author's plugin or driver
}

// mostShown bounds the events and calls of a picture: no window shows more.
const mostShown = 60

// look takes a picture. It leaves out what the agent does not answer within a refresh.
func (v viewer) look() picture {
	now := picture{
		rows: v.agent.Placements(), short: v.agent.Pressure(), wrong: lines(v.agent.Problems()),
		happens: tail(telling(v.agent.Events()), mostShown), calls: tail(v.calls.lines(), mostShown),
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

// telling leaves out what is said of each pod, and of the node too: that no DNS server is configured.
func telling(events []v1.Event) []v1.Event {
	return slices.DeleteFunc(events, func(e v1.Event) bool {
		return e.Reason == "MissingClusterDNS" && e.InvolvedObject.Kind == "Pod"
	})
}

// tail returns the last of the values.
func tail[T any](all []T, most int) []T { return all[max(0, len(all)-most):] }

// The times between two looks: at least refresh, and at most idle if nothing changes that is
// announced. Problems, events and pressure are not.
const idle = time.Second

// follow sends a picture whenever it differs from the one before, until ctx ends. The screen draws
// nothing else, so that an idle playground costs little.
func (v viewer) follow(ctx context.Context, send func(tea.Msg)) {
	changes := v.agent.Changes()
	var before *picture
	for {
		if now := v.look(); before == nil || !reflect.DeepEqual(*before, now) {
			before = &now
			send(now)
		}
		pause := time.NewTimer(refresh)
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-changes:
		case <-time.After(idle - refresh):
		}
	}
}

func (s screen) Init() tea.Cmd { return nil }

func (s screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.KeyPressMsg:
		return s.key(msg)
	case tea.WindowSizeMsg:
		s.width, s.height = msg.Width, msg.Height
	case picture:
		s.now = msg
		if s.list.selected == (assigned.Key{}) {
			s.list = s.list.move(s.list.rows(msg.rows), 0)
		}
	case told:
		if msg.kind == s.pane.kind && msg.of == s.pane.of {
			s.pane.text = msg.text
		}
	case askAgain:
		return s, s.ask()
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

// page lays out the picture, or the pane.
func (s screen) page() string {
	if s.pane.kind != "" {
		return s.panePage()
	}
	return strings.Join(s.layout().lines(), "\n")
}

// layout is a page that is being filled: blocks take lines while there are some left. A block that
// is there may be replaced by a longer version of it.
type layout struct {
	left   int
	blocks [blockCount][]string
}

// The blocks of a page, from top to bottom.
const (
	titleAt = iota
	hintsAt
	headAt
	tableAt
	reasonAt
	wrongAt
	freeAt
	callsAt
	eventsAt
	footAt
	blockCount
)

func (l *layout) lines() (out []string) {
	for _, block := range l.blocks {
		out = append(out, block...)
	}
	return out
}

// put has the block consist of these lines if there is room for them.
func (l *layout) put(at int, lines []string) {
	if more := len(lines) - len(l.blocks[at]); more <= l.left {
		l.blocks[at], l.left = lines, l.left-more
	}
}

// fill is put, but takes as many of the lines as there is room for: the first ones, or the last ones.
func (l *layout) fill(at int, lines []string) { l.put(at, lines[:min(len(lines), l.room(at))]) }

func (l *layout) fillLast(at int, lines []string) { l.put(at, tail(lines, l.room(at))) }

// room is how many lines the block may have.
func (l *layout) room(at int) int { return len(l.blocks[at]) + l.left }

// layout gives lines to what matters most first: some rows of the table, the reason of the selected
// one, what is wrong, what is free, where manifests go; then the rest of the table; then the same in
// more words; events last.
func (s screen) layout() *layout {
	l := &layout{left: s.height}
	if s.height <= 0 {
		l.left = 1 << 16
	}
	rows := s.list.rows(s.now.rows)
	selected := s.list.at(rows)
	g := gridOf(rows, s.width)
	table := func(most int) []string {
		if len(rows) == 0 {
			return faint([]string{s.nothing()}, s.width)
		}
		count := min(most, l.room(tableAt), len(rows))
		return g.show(s.list.window(rows, count), count, selected, s.width)
	}
	l.put(footAt, []string{""}) // its text depends on the rest
	l.fill(tableAt, table(3))
	l.put(headAt, g.head(s.width))
	l.put(reasonAt, s.selectedReason(rows, selected, 1+min(1, s.height/16)))
	l.put(titleAt, truncate([]string{bold(s.headline)}, s.width))
	l.fill(wrongAt, s.wrongs(3, 1))
	l.fill(tableAt, table(8))
	l.put(freeAt, reason{text: s.now.brief}.lines(s.width, 2))
	l.put(hintsAt, s.briefHints())
	l.fillLast(callsAt, truncate(tail(s.now.calls, 6), s.width))
	l.fill(tableAt, table(len(rows)))
	l.put(reasonAt, s.selectedReason(rows, selected, 4))
	l.put(wrongAt, s.wrongs(6, 2))
	l.put(freeAt, truncate(faint(s.now.free, 0), s.width))
	l.put(hintsAt, s.allHints())
	l.fillLast(callsAt, truncate(s.now.calls, s.width))
	l.fillLast(eventsAt, truncate(happened(tail(s.now.happens, max(s.height, 12)/3)), s.width))
	l.blocks[footAt] = []string{s.foot(rows, s.list.window(rows, len(l.blocks[tableAt])),
		len(l.blocks[tableAt]))}
	return l
}

// nothing says why the table is empty.
func (s screen) nothing() string {
	if s.list.filter != "" && len(s.now.rows) > 0 {
		return fmt.Sprintf("no container is like %q: esc shows all", s.list.filter)
	}
	return "there is no pod yet"
}

// selectedReason says what is the matter with the selected container, or in full what it has, in at most
// so many lines. It has a line even if there is no row, so that the table does not jump.
func (s screen) selectedReason(rows []assigned.Row, selected, most int) []string {
	if selected < 0 {
		return []string{""}
	}
	r := rows[selected]
	if notes := Notes(rows[selected : selected+1]); len(notes) > 0 {
		return reason{text: notes[0]}.lines(s.width, most)
	}
	text := fmt.Sprintf("%s, container %s: %s", r.Pod, r.Container, r.State.Phase)
	if r.State.Reason != "" {
		text += ", " + r.State.Reason
	}
	cells := Cells(r)
	for _, part := range []struct {
		cell int
		what string
	}{{3, "CPUs"}, {4, "memory of NUMA node"}, {5, "devices"}, {7, "aligned:"}} {
		if cells[part.cell] != "-" {
			text += fmt.Sprintf(", %s %s", part.what, cells[part.cell])
		}
	}
	return reason{text: text}.lines(s.width, most)
}

// wrongs returns what the node is short of and the problems of manifests and plugins: so many of
// them, each in at most most lines.
func (s screen) wrongs(count, most int) (out []string) {
	all := append(append([]string{}, s.now.short...), s.now.wrong...)
	for i, text := range all {
		if i == count-1 && len(all) > count {
			return append(out, reason{fmt.Sprintf("and %d more: n shows them", len(all)-i), true}.lines(s.width, 1)...)
		}
		out = append(out, reason{text, true}.lines(s.width, most)...)
	}
	return out
}

func (s screen) briefHints() (out []string) {
	for _, h := range s.hints {
		if h.brief != "" {
			out = append(out, faint([]string{h.brief}, s.width)...)
		}
	}
	return out
}

func (s screen) allHints() (out []string) {
	for _, h := range s.hints {
		out = append(out, faint(h.lines(s.width), 0)...)
	}
	return out
}

// foot returns the last line: what is filtered, the pods by phase, which rows are in view and what
// keys do. What comes last goes first if the window is narrow, but for how to quit.
func (s screen) foot(rows []assigned.Row, first, count int) string {
	var parts []string
	switch {
	case s.list.typing:
		parts = append(parts, "/"+s.list.filter+"▏")
	case s.list.filter != "":
		parts = append(parts, fmt.Sprintf("only %q (esc: all)", s.list.filter))
	}
	if count < len(rows) {
		parts = append(parts, fmt.Sprintf("rows %d-%d of %d", first+1, first+count, len(rows)))
	}
	if s.list.order > 0 {
		parts = append(parts, "by "+sorts[s.list.order].name)
	}
	parts = append(parts, summary(s.now.rows), "enter: why  / filters  s sorts")
	const end = "? keys  q quits"
	for len(parts) > 0 {
		line := strings.Join(append(parts[:len(parts):len(parts)], end), "   ")
		if lipgloss.Width(line) <= s.width {
			return faint([]string{line}, 0)[0]
		}
		parts = parts[:len(parts)-1]
	}
	return faint(truncate([]string{end}, s.width), 0)[0]
}

// reason says why something is not as it should be.
type reason struct {
	text  string
	wrong bool // of the node, a manifest or a plugin, for the user to correct
}

// lines wraps the reason at width columns. most limits the number of lines; 0 means no limit.
func (r reason) lines(width, most int) []string {
	if r.text == "" {
		return nil
	}
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

func bold(text string) string { return lipgloss.NewStyle().Bold(true).Render(text) }

// truncate cuts each line at the width.
func truncate(lines []string, width int) []string {
	out := make([]string, len(lines))
	for i, line := range lines {
		out[i] = ansi.Truncate(line, width, "...")
	}
	return out
}

// happened returns the events, one line each.
func happened(events []v1.Event) (out []string) {
	for _, e := range events {
		times := ""
		if e.Count > 1 {
			times = fmt.Sprintf(" (%d times)", e.Count)
		}
		out = append(out, fmt.Sprintf("%s %s %s%s: %s", e.LastTimestamp.Format(time.TimeOnly),
			e.InvolvedObject.Name, e.Reason, times, e.Message))
	}
	return out
}
