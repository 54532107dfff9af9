package playground

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"charm.land/lipgloss/v2"

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
