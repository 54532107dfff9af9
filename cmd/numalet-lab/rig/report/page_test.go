package report

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/numalet/numalet/cmd/numalet-lab/rig"
)

// If a policy admitted no pod of a kind, the report names both, unless no pod of that kind arrived.
func TestTurnedAwayIsSaid(t *testing.T) {
	shapes := func(admitted int) []rig.ShapeCount {
		return []rig.ShapeCount{
			{Name: "small", Arrived: 9, Admitted: 9}, {Name: "large", Arrived: 7, Admitted: admitted},
			{Name: "absent"},
		}
	}
	r := rig.Report{Policies: []rig.Outcome{
		{Policy: "none", Shapes: shapes(1)}, {Policy: "restricted", Shapes: shapes(0)},
	}}
	want := "Turned away altogether by restricted: large (0 of 7)."
	got := findings(r)
	if !slices.Contains(got, want) || strings.Count(strings.Join(got, ""), "Turned away") != 1 {
		t.Errorf("findings %q, want %q and no other pod", got, want)
	}
	r.Policies = r.Policies[1:]
	if got := findings(r); !slices.Equal(got, []string{want}) {
		t.Errorf("of one policy the findings are %q", got)
	}
	r.Interrupted = true
	if got := findings(r); len(got) > 0 {
		t.Errorf("of a run that was interrupted the findings are %q", got)
	}
}

// The colours of policies and those of outcomes are distinct.
func TestColoursMeanOneThing(t *testing.T) {
	script, err := assets.ReadFile("assets/page.js")
	if err != nil {
		t.Fatal(err)
	}
	begin := strings.Index(string(script), "const palettes")
	end := strings.Index(string(script), "const outcome = ")
	if begin < 0 || end < begin {
		t.Fatal("the colours are not where they were")
	}
	seen := map[string]bool{}
	for _, c := range regexp.MustCompile(`#[0-9a-f]{6}`).FindAllString(string(script)[begin:end], -1) {
		if seen[c] {
			t.Errorf("%s means two things", c)
		}
		seen[c] = true
	}
	if len(seen) < 16+26 {
		t.Errorf("%d colours", len(seen))
	}
	// The charts of outcomes use none of the policies' colours.
	for _, name := range []string{"admitted", "spread"} {
		_, rest, _ := strings.Cut(string(script), "  function "+name+"() {")
		body, _, found := strings.Cut(rest, "\n  }\n")
		if !found || strings.Contains(body, "colour(") || !strings.Contains(body, "outcome()") {
			t.Errorf("the chart %s does not keep to the colours of outcomes", name)
		}
	}
}
