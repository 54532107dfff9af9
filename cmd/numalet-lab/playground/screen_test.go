package playground

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/assigned"
)

// window is a model of the terminal: keys go in, lines come out.
type window struct {
	t *testing.T
	screen
}

func newWindow(t *testing.T, width, height int, now picture) *window {
	w := &window{t: t, screen: screen{headline: "numalet playground: a machine", hints: exampleHints()}}
	w.tell = func(k kind, of assigned.Key) []string {
		var out []string
		for i := range 50 {
			out = append(out, fmt.Sprintf("%s line %d of %s", k, i, of.Pod))
		}
		return out
	}
	w.send(tea.WindowSizeMsg{Width: width, Height: height})
	w.send(now)
	return w
}

func exampleHints() []hint {
	return []hint{
		{what: "drop a pod manifest into /tmp/numalet-1/manifests to start it",
			brief: "manifests: /tmp/numalet-1/manifests"},
		{what: "to know why:", command: "numalet explain POD"},
	}
}

// send gives the screen a message, and what its commands answer at once.
func (w *window) send(msg tea.Msg) {
	w.t.Helper()
	model, cmd := w.Update(msg)
	w.screen = model.(screen)
	if cmd == nil {
		return
	}
	if batch, is := cmd().(tea.BatchMsg); is {
		w.send(batch[0]()) // the others are for later
	}
}

// press sends keys.
func (w *window) press(names ...string) {
	w.t.Helper()
	for _, name := range names {
		key := tea.Key{}
		switch name {
		case "down":
			key.Code = tea.KeyDown
		case "up":
			key.Code = tea.KeyUp
		case "pgdown":
			key.Code = tea.KeyPgDown
		case "home":
			key.Code = tea.KeyHome
		case "end":
			key.Code = tea.KeyEnd
		case "enter":
			key.Code = tea.KeyEnter
		case "esc":
			key.Code = tea.KeyEscape
		case "backspace":
			key.Code = tea.KeyBackspace
		default:
			key.Code, key.Text = []rune(name)[0], name
		}
		w.send(tea.KeyPressMsg(key))
	}
}

// lines returns what is shown, and fails if it does not fit the window.
func (w *window) lines() []string {
	w.t.Helper()
	text := w.page()
	if width, height := lipgloss.Size(text); width > w.width || height > w.height {
		w.t.Fatalf("%dx%d: the page has %dx%d:\n%s", w.width, w.height, width, height, ansi.Strip(text))
	}
	return strings.Split(ansi.Strip(text), "\n")
}

func (w *window) text() string { return strings.Join(w.lines(), "\n") }

// shows fails unless each of the parts is shown.
func (w *window) shows(parts ...string) {
	w.t.Helper()
	text := w.text()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			w.t.Fatalf("%dx%d: the page lacks %q:\n%s", w.width, w.height, part, text)
		}
	}
}

func (w *window) hides(part string) {
	w.t.Helper()
	if text := w.text(); strings.Contains(text, part) {
		w.t.Fatalf("%dx%d: the page has %q:\n%s", w.width, w.height, part, text)
	}
}

// crowd has so many pods that wait, for the same reason.
func crowd(count int) picture {
	now := examplePicture()
	now.rows, now.wrong = nil, nil
	for i := range count {
		r := assigned.Row{
			Key: assigned.Key{Namespace: "default", Pod: fmt.Sprintf("pod-%02d-node", i), Container: "main"},
			State: assigned.State{Phase: v1.PodPending, Reason: "WaitingForDevicePlugin",
				Message: "no device plugin has registered example.com/fpga, which container main asks for"},
		}
		now.rows = append(now.rows, r)
	}
	return now
}

// podsShown counts the lines of pods.
func podsShown(lines []string) (n int) {
	for _, line := range lines {
		if strings.HasPrefix(line, "pod-") && strings.Contains(line, "main") {
			n++
		}
	}
	return n
}

// With sixty pods most lines are the table's, and the reason that all have is there once in words.
func TestTableIsFirst(t *testing.T) {
	for _, size := range []struct{ width, height, rows int }{{80, 24, 14}, {200, 50, 38}, {100, 30, 20}, {60, 20, 10}} {
		w := newWindow(t, size.width, size.height, crowd(60))
		if n := podsShown(w.lines()); n < size.rows {
			t.Errorf("%dx%d shows %d pods:\n%s", size.width, size.height, n, w.text())
		}
		if n := strings.Count(w.text(), "-node: WaitingForDevicePlugin: "); n != 1 {
			t.Errorf("%dx%d: the reason is there %d times:\n%s", size.width, size.height, n, w.text())
		}
		w.shows("WHY", "Waiting", "free: ", "q quits", "of 60")
	}
}

// The table scrolls by line, by page and to its ends, and the selected row stays in view.
func TestTableScrolls(t *testing.T) {
	w := newWindow(t, 80, 24, crowd(60))
	w.shows("pod-00-node")
	for range 30 {
		w.press("down")
	}
	w.shows("pod-30-node: WaitingForDevicePlugin")
	w.hides("pod-00-node")
	w.press("home")
	w.shows("pod-00-node: ", "rows 1-")
	w.press("pgdown")
	w.hides("pod-00-node: ")
	w.press("end")
	w.shows("pod-59-node: ", "-60 of 60")
	w.press("up")
	w.shows("pod-58-node: ", "pod-59-node")
	if before := podsShown(w.lines()); before < 14 {
		t.Errorf("at the end %d rows are in view", before)
	}
}

// The selection stays on its row when others come and go, and on a neighbour when the row goes.
func TestSelectionStays(t *testing.T) {
	now := crowd(10)
	w := newWindow(t, 80, 24, now)
	w.press("down", "down", "down")
	w.shows("pod-03-node: ")
	less := now
	less.rows = now.rows[2:]
	w.send(less)
	w.shows("pod-03-node: ")
	less.rows = append(slices.Clone(now.rows[:3]), now.rows[4:]...)
	w.send(less)
	w.shows("pod-04-node: ")
	less.rows = nil
	w.send(less)
	w.shows("there is no pod yet")
	w.press("down", "enter", "esc")
	w.send(now)
	w.shows("pod-")
}

// A filter leaves the rows with its text in any column or in the reason.
func TestFilter(t *testing.T) {
	w := newWindow(t, 100, 30, examplePicture())
	w.press("/", "t", "r", "a", "x", "backspace")
	w.shows("/tra", "train-node")
	w.hides("shop/web-node")
	w.press("i", "n", "enter")
	w.shows(`only "train"`)
	w.press("s") // is a key again
	w.shows("by trouble")
	w.press("esc")
	w.shows("shop/web-node")
	w.press("/", "O", "U", "T", "O", "F", "enter")
	w.shows("too-big-node")
	w.hides("train-node")
	w.press("/", "q", "q", "enter")
	w.shows("no container is like")
	if w.list.typing {
		t.Error("enter does not end the filter")
	}
}

// Sorted by trouble, pods that failed come first, and those that run last.
func TestSort(t *testing.T) {
	w := newWindow(t, 120, 40, examplePicture())
	w.press("s")
	var order []string
	for _, r := range w.list.rows(w.now.rows) {
		order = append(order, r.Pod+" "+r.Container)
	}
	want := []string{"too-big-node main", "fpga-node main", "train-node trainer", "wide-node main",
		"web-node nginx", "web-node side"}
	if !slices.Equal(order, want) {
		t.Errorf("%q, want %q", order, want)
	}
	for range sorts[1:] {
		w.press("s")
	}
	if w.list.order != 0 {
		t.Error("the sorts do not come round")
	}
}

// The panes show text about the selected pod, scroll, and close.
func TestPanes(t *testing.T) {
	w := newWindow(t, 80, 24, examplePicture())
	w.press("down", "down")
	for _, test := range []struct{ key, title, first string }{
		{"enter", "explain of default/train-node", "explain line 0 of train-node"},
		{"e", "events of default/train-node", "events line 49 of train-node"}, // the newest
		{"l", "log of default/train-node, container trainer", "log line 49 of train-node"},
		{"n", "node", "node line 0 of "},
		{"c", "calls", "calls line 49 of "},
		{"?", "keys", "select the container above or below"},
	} {
		w.press(test.key)
		w.shows(test.title, test.first, "esc: back")
		w.press("end")
		w.press("esc")
		w.shows("train-node, container trainer: Running, CPUs 1-2,33-34, memory")
	}
	w.press("enter", "pgdown")
	w.hides("explain line 0 of")
	w.press("home")
	w.shows("explain line 0 of")
	w.press("enter")
	w.hides("explain line")
	w.press("?", "end")
	w.shows("numalet explain POD")
}

// The text of a pane that was closed meanwhile is not shown in another.
func TestLateText(t *testing.T) {
	w := newWindow(t, 80, 24, examplePicture())
	w.press("l")
	late := told{explainPane, w.pane.of, []string{"too late"}}
	w.send(late)
	w.hides("too late")
}

// In any window the page fits, and what matters most is there.
func TestPageFits(t *testing.T) {
	now := examplePicture()
	now.short = []string{"MemoryPressure: memory.available is below 600Mi"}
	for width := 20; width < 210; width += 9 {
		for height := 1; height < 60; height += 1 + height/8 {
			w := newWindow(t, width, height, now)
			w.lines()
			for _, key := range []string{"?", "enter", "n"} {
				w.press(key)
				w.lines()
				w.press("esc")
			}
			if height >= 10 && width >= 60 {
				w.shows("train-node", "MemoryPressure", "q quits", "no device plugin has")
			}
			if height >= 24 && width >= 80 {
				w.shows("/tmp/numalet-1/manifests", "free: ", "45 of 63", "a.yaml: it has no containers",
					"too-big-node", "OutOfcpu")
			}
		}
	}
	whole := newWindow(t, 120, 60, now)
	whole.shows("BackOff (3 times): Back-off", "explain POD", "exclusive CPUs: 45 of 63")
}

// Names of pods that differ at their ends can be told apart where they are cut.
func TestLongNames(t *testing.T) {
	now := crowd(2)
	now.rows[0].Pod, now.rows[1].Pod = "a-deployment-of-a-long-name-666fc79b89-rxlr6", "a-deployment-of-a-long-name-666fc79b89-wfnjg"
	w := newWindow(t, 80, 24, now)
	w.shows("…-rxlr6 ", "…-wfnjg ", "WHY")
}

// Many problems do not push the table out.
func TestManyProblems(t *testing.T) {
	now := crowd(60)
	for i := range 30 {
		now.wrong = append(now.wrong, fmt.Sprintf("refused: %d.yaml: %s", i, strings.Repeat("it is wrong ", 20)))
	}
	w := newWindow(t, 80, 24, now)
	w.shows("refused: 0.yaml", "28 more: n shows them")
	if n := podsShown(w.lines()); n < 10 {
		t.Errorf("%d pods are shown:\n%s", n, w.text())
	}
}

// What an author's plugin and the agent say is on the page.
func TestPageShowsCalls(t *testing.T) {
	now := examplePicture()
	for i := range 40 {
		now.calls = append(now.calls, fmt.Sprintf("    0.%03d  agent -> plugin: Allocate {%d}", i, i))
	}
	w := newWindow(t, 100, 30, now)
	w.shows("agent -> plugin: Allocate {39}", "train-node", "q quits")
}
