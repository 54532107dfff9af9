package gpu

import (
	"os"
	"strings"
	"testing"
)

// The page names every option with its variable and every reason.
func TestPageIsComplete(t *testing.T) {
	raw, err := os.ReadFile("../../docs/gpu-plugin.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	var names []string
	for _, o := range optionTable() {
		names = append(names, "`--"+o.flag+"` | "+o.env+" |")
	}
	for flag := range withoutEffect() {
		names = append(names, "`"+flag+"`")
	}
	for _, reason := range []Reason{DriverGone, DriverHangs, FellOffBus, MemoryErrors, RemapPending,
		RemapFailed, NVLinkDown, CriticalXID, ActionRequired, NoMPS} {
		names = append(names, "| "+string(reason)+" |")
	}
	for _, name := range names {
		if !strings.Contains(page, name) {
			t.Errorf("docs/gpu-plugin.md does not have %s", name)
		}
	}
}
