package playground

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/numalet/numalet/agent/placement/assigned"
)

// kind says what a pane shows; "": there is none.
type kind string

const (
	helpPane    kind = "keys"
	explainPane kind = "explain"
	eventsPane  kind = "events"
	logPane     kind = "log"
	nodePane    kind = "node"
	callsPane   kind = "calls"
)

// pane is a text in place of the table.
type pane struct {
	kind  kind
	of    assigned.Key
	text  []string
	first int  // of the lines in view
	end   bool // the last lines are in view, also those that come
}

// told is the text of a pane.
type told struct {
	kind kind
	of   assigned.Key
	text []string
}

// askAgain has the text of the pane asked for again.
type askAgain struct{}

// often is how often the text of an open pane is asked for.
const often = time.Second

// bindings say what keys do, as ? shows it.
var bindings = []struct{ keys, does string }{
	{"up down, j k", "select the container above or below"},
	{"page up, page down", "go a page up or down"},
	{"home end, g G", "go to the first or last"},
	{"/", "show only rows with a text: type it, enter ends it, esc shows all again"},
	{"s", "sort by name, by trouble, by NUMA node, by devices"},
	{"enter", "explain the decision on the pod: what it asks for, what was free, what is in the way"},
	{"e", "events of the pod"},
	{"l", "log of the container"},
	{"n", "the node: what it is short of, what is wrong, what is free where, all events"},
	{"c", "calls and answers of the plugin of --plugin or the driver of --driver"},
	{"?", "these keys, and what can be done in another terminal"},
	{"esc", "back to the table"},
	{"q", "quit, and leave nothing behind"},
}

// help returns the text of the pane of keys.
func help(hints []hint) (out []string) {
	for _, b := range bindings {
		out = append(out, fmt.Sprintf("%-20s %s", b.keys, b.does))
	}
	for _, h := range hints {
		out = append(out, "")
		if h.command == "" {
			out = append(out, h.what)
			continue
		}
		out = append(out, h.what, "  "+h.command)
	}
	return out
}

// key does what a key says.
func (s screen) key(msg tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	name := msg.String()
	if name == "ctrl+c" {
		return s, tea.Quit
	}
	if s.list.typing {
		s.list = s.list.write(name, msg.Text)
		s.list = s.list.move(s.list.rows(s.now.rows), 0)
		return s, nil
	}
	switch name {
	case "q":
		return s, tea.Quit
	case "esc":
		if s.pane.kind == "" {
			s.list.filter = ""
		}
		s.pane = pane{}
		return s, nil
	case "?":
		return s.open(helpPane)
	case "enter":
		return s.open(explainPane)
	case "e":
		return s.open(eventsPane)
	case "l":
		return s.open(logPane)
	case "n":
		return s.open(nodePane)
	case "c":
		return s.open(callsPane)
	}
	if by, is := steps(name, max(1, s.height-6)); is {
		return s.scroll(by), nil
	}
	switch {
	case s.pane.kind != "":
	case name == "/":
		s.list.typing, s.list.filter = true, ""
	case name == "s":
		s.list.order = (s.list.order + 1) % len(sorts)
	}
	return s, nil
}

// far is further than any end.
const far = 1 << 20

// steps returns how far a key goes.
func steps(name string, page int) (by int, is bool) {
	switch name {
	case "up", "k":
		return -1, true
	case "down", "j":
		return 1, true
	case "pgup", "b":
		return -page, true
	case "pgdown", "space":
		return page, true
	case "home", "g":
		return -far, true
	case "end", "G":
		return far, true
	}
	return 0, false
}

// scroll moves the selection, or the lines of the pane.
func (s screen) scroll(by int) screen {
	if s.pane.kind != "" {
		last := max(0, len(s.paneLines())-s.paneHeight())
		s.pane.first = min(max(s.paneFirst()+by, 0), last)
		s.pane.end = s.pane.first == last && s.pane.kind.grows()
		return s
	}
	rows := s.list.rows(s.now.rows)
	s.list = s.list.move(rows, by)
	s.list.first = s.list.window(rows, len(s.layout().blocks[tableAt]))
	return s
}

// write changes the filter by a key.
func (l list) write(name, text string) list {
	switch name {
	case "enter":
		l.typing = false
	case "esc":
		l.typing, l.filter = false, ""
	case "backspace":
		if runes := []rune(l.filter); len(runes) > 0 {
			l.filter = string(runes[:len(runes)-1])
		}
	default:
		l.filter += text
	}
	return l
}

// open opens a pane about the selected row. The same key again closes it.
func (s screen) open(k kind) (tea.Model, tea.Cmd) {
	if s.pane.kind == k {
		s.pane = pane{}
		return s, nil
	}
	s.pane = pane{kind: k, end: k.grows()}
	if k == helpPane {
		s.pane.text = help(s.hints)
		return s, nil
	}
	if rows := s.list.rows(s.now.rows); len(rows) > 0 && k.ofPod() {
		s.pane.of = rows[s.list.at(rows)].Key
	}
	return s, s.ask()
}

// grows reports whether the newest of the text is at its end.
func (k kind) grows() bool { return k == logPane || k == eventsPane || k == callsPane }

// ofPod reports whether the text is about the selected row.
func (k kind) ofPod() bool { return k == explainPane || k == eventsPane || k == logPane }

// ask asks for the text of the open pane now, and for it to be asked for again.
func (s screen) ask() tea.Cmd {
	k, of, tell := s.pane.kind, s.pane.of, s.tell
	if k == "" || k == helpPane || tell == nil {
		return nil
	}
	return tea.Batch(
		func() tea.Msg { return told{k, of, tell(k, of)} },
		tea.Tick(often, func(time.Time) tea.Msg { return askAgain{} }))
}

// paneHeight is how many lines of a pane are in view: all but its title and the foot.
func (s screen) paneHeight() int { return max(1, s.height-2) }

func (s screen) paneLines() (out []string) {
	for _, line := range s.pane.text {
		out = append(out, foldPane(line, s.width)...)
	}
	return out
}

// foldPane wraps a line; what follows stands in as far as the line did.
func foldPane(line string, width int) []string {
	margin := line[:len(line)-len(strings.TrimLeft(line, " "))]
	if len(margin) > width/2 {
		margin = ""
	}
	out := wrap(strings.TrimPrefix(line, margin), width-len(margin))
	for i := range out {
		out[i] = margin + out[i]
	}
	return out
}

func (s screen) paneFirst() int {
	last := max(0, len(s.paneLines())-s.paneHeight())
	if s.pane.end {
		return last
	}
	return min(s.pane.first, last)
}

// panePage lays out the pane.
func (s screen) panePage() string {
	title := string(s.pane.kind)
	if s.pane.kind.ofPod() {
		title = fmt.Sprintf("%s of %s/%s", s.pane.kind, s.pane.of.Namespace, s.pane.of.Pod)
		if s.pane.kind == logPane {
			title += ", container " + s.pane.of.Container
		}
	}
	all, first := s.paneLines(), s.paneFirst()
	shown := all[first:min(first+s.paneHeight(), len(all))]
	foot := "esc: back   q quits"
	if len(shown) < len(all) {
		foot = fmt.Sprintf("lines %d-%d of %d   ", first+1, first+len(shown), len(all)) + foot
	}
	out := append([]string{truncate([]string{bold(title)}, s.width)[0]}, shown...)
	for len(out) < s.height-1 {
		out = append(out, "")
	}
	out = append(out[:max(1, min(len(out), s.height-1))], faint(truncate([]string{foot}, s.width), 0)...)
	return strings.Join(out[:max(1, min(len(out), s.height))], "\n")
}
