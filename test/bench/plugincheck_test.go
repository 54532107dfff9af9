package bench

import (
	"fmt"
	"testing"

	"github.com/numalet/numalet/deviceplugin/check"
	"github.com/numalet/numalet/test/harness"
)

// BenchmarkPluginCheck is all checks of a good plugin that is a process of its own. A second of it
// is spent watching a plugin that should do nothing.
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
