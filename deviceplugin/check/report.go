package check

import (
	"fmt"
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
	Name    string  `json:"name"`
	Group   string  `json:"group"`
	Verdict Verdict `json:"verdict"`
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
	// Resource is the plugin's, or the name of a DRA driver.
	Resource string `json:"resource"`
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

// Good reports whether no check failed.
func (r Report) Good() bool { return r.Count(Failed) == 0 }

// Summary returns the report in one line.
func (r Report) Summary() string {
	text := fmt.Sprintf("%d passed, %d failed, %d with warnings, %d not made, in %.1f s",
		r.Count(Passed), r.Count(Failed), r.Count(Warning), r.Count(Skipped), r.Seconds)
	if r.Resource == "" {
		return text
	}
	return r.Resource + ": " + text
}
