package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// said is a line of go test's for each line here: ACTION PACKAGE [TEST [SECONDS]] [| OUTPUT].
func said(t *testing.T, r *report, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		line, output, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "| ")
		f := append(strings.Fields(line), "", "", "")
		raw := `{"Time":"2026-01-01T00:00:00Z","Action":"` + f[0] + `","Package":"` + f[1] + `"`
		if f[2] != "" {
			raw += `,"Test":"` + f[2] + `"`
		}
		if f[3] != "" {
			raw += `,"Elapsed":` + f[3]
		}
		if output != "" {
			raw += `,"Output":"` + output + `\n"`
		}
		r.line(raw + "}\n")
	}
}

const story = `start a
run a TestGood
output a TestGood | === RUN   TestGood
output a TestGood | a word
pass a TestGood 1.5
output a | PASS
output a | ok a 1.6s
pass a
start b
run b TestBad
output b TestBad | === RUN   TestBad
run b TestBad/first
output b TestBad/first | what the first said
pass b TestBad/first 0
run b TestBad/second
output b TestBad/second | what the second said
output b TestBad/second |     --- FAIL: TestBad/second
fail b TestBad/second 2
output b TestBad | --- FAIL: TestBad
fail b TestBad 2
run b TestSkipped
output b TestSkipped | not here
skip b TestSkipped 0
run b TestHangs
output b TestHangs | panic: test timed out
output b | FAIL b 9s
fail b
`

func TestReportSaysWhatGoTestSays(t *testing.T) {
	var out strings.Builder
	r := newReport(&out, false)
	said(t, r, story)
	r.line("# a line that is no event\n")
	r.end()
	want := `ok a 1.6s
# b
what the second said
    --- FAIL: TestBad/second
--- FAIL: TestBad
panic: test timed out
FAIL b 9s
# a line that is no event
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	if !r.failed || !slices.Equal(r.names, []string{"TestBad"}) {
		t.Errorf("failed: %v, %q", r.failed, r.names)
	}
	want = `    2.00 s  b  TestBad
    1.50 s  a  TestGood`
	if diff := cmp.Diff(want, strings.Join(r.longest(2), "\n")); diff != "" {
		t.Error(diff)
	}
	if len(r.output)+len(r.running) > 0 {
		t.Errorf("kept after the end: %v %v", r.output, r.running)
	}
}

// TestReportPrintsATestWhenItEnds: what a failed test said is printed with its end, while others of
// its package go on, and is not mixed with what tests say that run in parallel with it.
func TestReportPrintsATestWhenItEnds(t *testing.T) {
	var out strings.Builder
	r := newReport(&out, false)
	for _, step := range []struct{ said, printed string }{
		{"start a\nstart b\nrun a TestLong\nrun a TestBad\noutput a TestBad | bad begins\n" +
			"run a TestBad/x\nrun a TestBad/y\nrun a TestBad/good\nrun b TestOther\n", ""},
		{"output a TestBad/x | x one\noutput a TestLong | long one\noutput a TestBad/y | y one\n" +
			"output a TestBad/good | good one\noutput b TestOther | other one\noutput a TestBad/x | x two\n", ""},
		{"pass a TestBad/good 0\nfail a TestBad/y 1\n", "# a\ny one\n"},
		{"output b TestOther | --- FAIL: TestOther\nfail b TestOther 1\n",
			"# b\nother one\n--- FAIL: TestOther\n"},
		{"output a TestBad/x | --- FAIL: TestBad/x\nfail a TestBad/x 1\n",
			"# a\nx one\nx two\n--- FAIL: TestBad/x\n"},
		{"output a TestBad | --- FAIL: TestBad\nfail a TestBad 1\n", "bad begins\n--- FAIL: TestBad\n"},
		{"output b | FAIL\noutput b | FAIL b 2s\nfail b\n", "FAIL\nFAIL b 2s\n"},
		{"output a TestLong | long two\nfail a TestLong 3\n", "# a\nlong one\nlong two\n"},
		{"output a | FAIL\noutput a | FAIL a 4s\nfail a\n", "FAIL\nFAIL a 4s\n"},
	} {
		out.Reset()
		said(t, r, step.said)
		if diff := cmp.Diff(step.printed, out.String()); diff != "" {
			t.Errorf("after %q:\n%s", step.said, diff)
		}
	}
	if r.end(); len(r.output) > 0 {
		t.Errorf("kept after the end: %v", r.output)
	}
}

func TestReportShowsAllOfAPackage(t *testing.T) {
	var out strings.Builder
	r := newReport(&out, true)
	said(t, r, "start a\nrun a TestGood\noutput a TestGood | === RUN   TestGood\n"+
		"output a TestGood | a row\npass a TestGood 1\noutput a | PASS\noutput a | ok a 1s\npass a\n")
	r.end()
	if diff := cmp.Diff("a row\nok a 1s\n", out.String()); diff != "" || r.failed {
		t.Error(diff, r.failed)
	}
}

func TestNothingTestedIsAFailure(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "no end": "start a\nrun a TestGood\n", "no build": "build-output a | undefined: x\nbuild-fail a\n",
	} {
		var out strings.Builder
		r := newReport(&out, false)
		said(t, r, text)
		r.end()
		if !r.failed || out.Len() == 0 || name == "no end" && !slices.Equal(r.names, []string{"a"}) {
			t.Errorf("%s: failed %v %q, said %q", name, r.failed, r.names, &out)
		}
	}
}

func TestProgressNamesWhatRunsLongest(t *testing.T) {
	r := newReport(&strings.Builder{}, false)
	said(t, r, "start a\nrun a TestOne\npass a TestOne 1\nrun a TestTwo\nrun a TestTwo/sub\n"+
		"run a TestThree\npause a TestThree\nrun a TestFour\npause a TestFour\ncont a TestThree\n")
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	got := r.progress("sim", began.Add(90*time.Second), began, 4*time.Minute)
	want := "   sim: 1 tests of 0 packages in 1m30s, usually 4m0s; now TestThree 1m30s, TestTwo 1m30s"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
