package playground

import (
	"bufio"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/assigned"
	"github.com/numalet/numalet/deviceplugin/check"
)

// Rows that are new, have changed or are gone are printed, each once.
func TestNews(t *testing.T) {
	now := examplePicture()
	out := &strings.Builder{}
	p := printer{out: out}
	s := seen{text: p.rowText()}
	lines := func() int {
		t.Helper()
		out.Reset()
		if err := p.print(s.news(now)); err != nil {
			t.Fatal(err)
		}
		return strings.Count(out.String(), "\n")
	}
	if n := lines(); n != len(now.rows)+len(now.wrong) {
		t.Errorf("%d lines:\n%s", n, out)
	}
	if n := lines(); n != 0 {
		t.Errorf("nothing has changed, but:\n%s", out)
	}
	now.rows = slices.Clone(now.rows[1:])
	now.rows[0].State.Phase = v1.PodRunning
	now.wrong, now.short = nil, []string{"MemoryPressure: memory.available is below 1Gi"}
	lines()
	for _, want := range []string{"default/fpga-node main  gone\n", "default/too-big-node main  Running",
		"MemoryPressure: "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, out)
		}
	}
	now.wrong = []string{"refused: a.yaml: it has no containers"} // it is back
	if n := lines(); n != 1 {
		t.Errorf("a problem that is back:\n%s", out)
	}
}

// Each line of JSON is an object with the time and one thing, and all of a row counts.
func TestNewsInJSON(t *testing.T) {
	now := examplePicture()
	out := &strings.Builder{}
	p := printer{out: out, json: true}
	if err := p.begin(viewer{headline: "a machine", hints: exampleHints()}); err != nil || out.Len() > 0 {
		t.Errorf("%v: JSON begins with %s", err, out)
	}
	s := seen{text: p.rowText()}
	if err := p.print(s.news(now)); err != nil {
		t.Fatal(err)
	}
	var rows []assigned.Row
	for in := bufio.NewScanner(strings.NewReader(out.String())); in.Scan(); {
		var c change
		if err := json.Unmarshal(in.Bytes(), &c); err != nil || c.Time.IsZero() {
			t.Fatalf("%v: %s", err, in.Text())
		}
		if c.Container != nil {
			rows = append(rows, *c.Container)
		}
	}
	if len(rows) != len(now.rows) || rows[2].CPUs != now.rows[2].CPUs {
		t.Errorf("%d rows", len(rows))
	}
	now.rows = slices.Clone(now.rows)
	now.rows[4].CPUs = "1-62" // as text it is the shared pool's size
	if news := s.news(now); len(news) != 1 {
		t.Errorf("%d changes when CPUs have changed", len(news))
	}
}

// Of calls the last are kept, and each is handed out once.
func TestCalls(t *testing.T) {
	var none *calls
	if lines, count := none.since(0); lines != nil || count != 0 {
		t.Error("there are calls of nobody")
	}
	c := &calls{}
	c.heard("plugin")
	if _, err := c.from("plugin").Write([]byte("one\ntwo\nthr")); err != nil {
		t.Fatal(err)
	}
	lines, count := c.since(0)
	if count != 2 || !strings.HasSuffix(lines[1], "plugin prints: two") {
		t.Errorf("%d: %q", count, lines)
	}
	for range mostCalls {
		c.add(check.Line{What: "more"})
	}
	if lines, count = c.since(count); len(lines) != mostCalls || count != mostCalls+2 {
		t.Errorf("%d lines of %d", len(lines), count)
	}
	if lines, _ = c.since(count); len(lines) != 0 {
		t.Errorf("handed out twice: %q", lines)
	}
	if n := len(c.lines()); n != mostCalls {
		t.Errorf("%d are kept", n)
	}
}
