package playground

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/numalet/numalet/internal/terminal"
)

// Words stay whole, also words with hyphens.
func TestWrap(t *testing.T) {
	const text = "crash-node: back-off 20s restarting failed container=main pod=crash-node_default"
	for width := 28; width < 90; width++ {
		lines := wrap(text, width)
		if got := strings.Join(lines, " "); got != text {
			t.Errorf("at %d: %q", width, lines)
		}
		for _, line := range lines {
			if lipgloss.Width(line) > width {
				t.Errorf("at %d: %q is wider", width, line)
			}
		}
	}
	if got := wrap("abcdefgh i", 5); !slices.Equal(got, []string{"abcde", "fgh i"}) {
		t.Errorf("a word wider than the line: %q", got)
	}
}

// A shell reads a command as it is shown, whatever the width and the names in it.
func TestCommandsCanBePasted(t *testing.T) {
	want := []string{"/tmp/with blank's/numalet", "explain", "POD", "--server", "127.0.0.1:1"}
	h := hint{what: "to know why:", command: terminal.Quoted(want[0]) + " explain POD --server 127.0.0.1:1"}
	for _, width := range []int{40, 60, 80, 120} {
		text := strings.TrimSpace(strings.TrimPrefix(strings.Join(h.lines(width), "\n"), h.what))
		out, err := exec.Command("sh", "-c", `printf '%s\n' `+text).Output()
		if got := strings.TrimSpace(string(out)); err != nil || got != strings.Join(want, "\n") {
			t.Errorf("at %d: %v, %s", width, err, got)
		}
	}
}

// What to type names the program that has the command, whichever of the two was called.
func TestCommandsAreOfTheAgentsProgram(t *testing.T) {
	for _, called := range []string{"bin/numalet-lab", "bin/numalet"} {
		if got := agentProgram(called); got != "bin/numalet" {
			t.Errorf("%s says to call %s", called, got)
		}
	}
}

// In a window of the usual initial size, the reasons and the free resources are shown.
func TestSmallPage(t *testing.T) {
	now := examplePicture()
	now.wrong, now.happens = nil, nil
	for i := range 6 {
		now.free = append(now.free, fmt.Sprintf("free: resource%d: 1 of 1", i))
	}
	text := screen{headline: "numalet playground", width: 80, height: 24, now: now,
		hints: []hint{
			{what: "for kubectl:", command: "export KUBECONFIG=/tmp/k; alias kubectl=/usr/bin/kubectl",
				brief: "export KUBECONFIG=/tmp/k"},
			{what: "drop a pod manifest into /tmp/m to start it, delete it to stop it; log: /tmp/l",
				brief: "manifests: /tmp/m"},
			{what: "to know why:", command: "numalet explain POD"},
		}}.page()
	for _, part := range []string{"export KUBECONFIG=/tmp/k", "manifests: /tmp/m",
		"numalet explain POD", "too-big-node: OutOfcpu", "free: cpu 45 of 63; memory", "q quits",
		"shop/web-node", "train-node"} {
		if !strings.Contains(text, part) {
			t.Errorf("the page lacks %q:\n%s", part, text)
		}
	}
}

// In the smallest usual window, each reason has two lines, and the table still has room.
func TestSmallestPage(t *testing.T) {
	now := examplePicture()
	now.wrong = []string{strings.Repeat("a manifest is wrong at great length ", 10)}
	text := ansi.Strip(screen{headline: strings.Repeat("numalet playground ", 5), width: 60,
		height: 20, now: now, hints: []hint{{what: "to know why:", command: "numalet explain POD"}}}.page())
	for _, part := range []string{
		"to know why: numalet explain POD", "too-big-node: OutOfcpu", "a manifest is wrong",
		"train-node", "q quits", "free: cpu 45 of 63",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("the page lacks %q:\n%s", part, text)
		}
	}
	if n := strings.Count(text, "a manifest is wrong"); n > 3 {
		t.Errorf("one reason fills the page:\n%s", text)
	}
}
