package bench

import (
	"fmt"
	"testing"

	"github.com/numalet/numalet/deviceplugin/check"
	"github.com/numalet/numalet/test/harness"
)

// BenchmarkPluginCheck measures all checks of a good plugin in a process of its own. They watch an
// idle plugin for a second.
func BenchmarkPluginCheck(b *testing.B) {
	binary, err := harness.Binary()
	must(b, err)
	for b.Loop() {
		report, err := check.Run(limited(b), check.Config{Command: fmt.Sprintf(
			"'%s' plugin sim --resource %s --dir {dir}", binary, benchResource)})
		must(b, err)
		if !report.Good() {
			b.Fatal(report.Summary())
		}
	}
}
