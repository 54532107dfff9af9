package check

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

// Verdict is the outcome of a check.
type Verdict string

// The verdicts. A plugin with warnings is still good.
const (
	Passed  Verdict = "passed"
	Warning Verdict = "warning"
	Failed  Verdict = "failed"
	Skipped Verdict = "skipped"
)

// Result is the outcome of one check, in words for the plugin's author.
type Result struct {
	Name string `json:"name"`
	// Resource is the checked one, or the name of a DRA driver; "": it is not known yet.
	Resource string  `json:"resource,omitempty"`
	Group    string  `json:"group"`
	Verdict  Verdict `json:"verdict"`
	// Did is what was done, Expected what a plugin should do then, Happened what this one did, or
	// why the check was skipped.
	Did      string `json:"did"`
	Expected string `json:"expected"`
	Happened string `json:"happened"`
	// Why says why it matters on a node, Hint what to do about it.
	Why  string `json:"why"`
	Hint string `json:"hint"`
	// Seconds is the duration of the check.
	Seconds float64 `json:"seconds"`
}

// Report holds the outcome of all checks.
type Report struct {
	// Kind says what was checked; "": a device plugin.
	Kind string `json:"kind,omitempty"`
	// Resource is the plugin's first, or the name of a DRA driver; Resources has all of them.
	Resource  string   `json:"resource"`
	Resources []string `json:"resources"`
	// Way is how the plugin registered, Endpoint the path of its socket.
	Way      devicemanager.Way `json:"way,omitempty"`
	Endpoint string            `json:"endpoint,omitempty"`
	// Devices is the number of devices in the first list.
	Devices int       `json:"devices"`
	Began   time.Time `json:"began"`
	Seconds float64   `json:"seconds"`
	Results []Result  `json:"results"`
	// Transcript holds every message; WriteTranscript writes it.
	Transcript []Line `json:"-"`
}

// Count returns the number of checks with the verdict.
func (r Report) Count(v Verdict) int {
	n := 0
	for _, result := range r.Results {
		if result.Verdict == v {
			n++
		}
	}
	return n
}

// and returns the report with that of the plugin's next resource.
func (r Report) and(next Report) Report {
	after := time.Duration(r.Seconds * float64(time.Second))
	for _, line := range next.Transcript {
		r.Transcript = append(r.Transcript, Line{line.At + after, line.What})
	}
	r.Resources = slices.Concat(r.Resources, next.Resources)
	r.Results = slices.Concat(r.Results, next.Results)
	r.Seconds += next.Seconds
	return r
}

// coreChecks are the checks without which nothing was checked that matters on a node.
var coreChecks = []string{allocates, "prepares"}

// Unchecked says why neither devices nor claims were checked although nothing failed; "": they were.
func (r Report) Unchecked() string {
	if !r.Good() {
		return ""
	}
	for _, result := range r.Results {
		if slices.Contains(coreChecks, result.Name) && result.Verdict == Skipped {
			return result.Happened
		}
	}
	if r.Count(Skipped) == len(r.Results) {
		return "no check could be made"
	}
	return ""
}

// Good reports whether no check failed.
func (r Report) Good() bool { return r.Count(Failed) == 0 }

// Summary returns the report in one line.
func (r Report) Summary() string {
	text := fmt.Sprintf("%d passed, %s, %s, %d not made, in %.1f s", r.Count(Passed),
		r.named(Failed, "failed"), r.named(Warning, "with warnings"), r.Count(Skipped), r.Seconds)
	if r.Resource == "" {
		return text
	}
	return strings.Join(r.Resources, ", ") + ": " + text
}

// named counts the checks with the verdict and names them.
func (r Report) named(v Verdict, word string) string {
	var names []string
	for _, result := range r.Results {
		if result.Verdict == v {
			names = append(names, result.Name)
		}
	}
	text := fmt.Sprintf("%d %s", len(names), word)
	if len(names) > 0 {
		text += " (" + strings.Join(names, ", ") + ")"
	}
	return text
}
