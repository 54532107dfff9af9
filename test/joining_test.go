package test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/numalet/numalet/agent/node/config"
)

// TestDifferencesOnJoining: docs/joining-a-cluster.md names the settings that work otherwise than in a kubelet, as the
// configuration's tables do, and the fields of pods that do, as pod-fields.md does.
func TestDifferencesOnJoining(t *testing.T) {
	pages := pagesOf(t)
	_, text, _ := strings.Cut(pages["../docs/joining-a-cluster.md"], "\n## What is not the same\n")
	text, _, _ = strings.Cut(text, "\n## ")
	settings, fields, found := strings.Cut(text, "| volume |")
	if !found {
		t.Fatal("the page has no table of volumes")
	}
	row := regexp.MustCompile("(?m)^\\| `[^`]+` \\| .* \\|$")
	var want []string
	for _, s := range config.Remarkable() {
		want = append(want, "| `"+s.Name+"` | "+string(s.Effect)+" | "+s.Note+" |")
	}
	if diff := cmp.Diff(want, row.FindAllString(settings, -1)); diff != "" {
		t.Errorf("settings, by the configuration and by the page: %s", diff)
	}
	want = regexp.MustCompile("(?m)^\\| `\\w+` \\| (?:waits|refused|no effect yet) \\| .* \\|$").
		FindAllString(pages["../docs/pod-fields.md"], -1)
	if len(want) == 0 {
		t.Fatal("pod-fields.md has no such field")
	}
	if diff := cmp.Diff(want, row.FindAllString(fields, -1)); diff != "" {
		t.Errorf("fields, by pod-fields.md and by the page: %s", diff)
	}
	if !strings.Contains(text, "a kubelet "+config.KubeletVersion+" ") {
		t.Errorf("the page is about another kubelet than %s", config.KubeletVersion)
	}
}
