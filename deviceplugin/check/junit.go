package check

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// junitSuites is the part of JUnit's format that CI systems read.
type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Skipped  int          `xml:"skipped,attr"`
	Time     string       `xml:"time,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name      string      `xml:"name,attr"`
	Tests     int         `xml:"tests,attr"`
	Failures  int         `xml:"failures,attr"`
	Skipped   int         `xml:"skipped,attr"`
	Time      string      `xml:"time,attr"`
	Timestamp string      `xml:"timestamp,attr"`
	Cases     []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitFailure `xml:"failure,omitempty"`
	Skipped *junitFailure `xml:"skipped,omitempty"`
	Out     string        `xml:"system-out,omitempty"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes a report in JUnit's format: a suite for each group of a resource, and a test case
// for each check.
func WriteJUnit(w io.Writer, r Report) error {
	all := junitSuites{
		Name:  cmp.Or(r.Kind, "device plugin") + " " + strings.Join(r.Resources, ", "),
		Tests: len(r.Results), Failures: r.Count(Failed), Skipped: r.Count(Skipped),
		Time: seconds(r.Seconds),
	}
	began, rest := r.Began, r.Results
	for len(rest) > 0 {
		group := rest
		if n := slices.IndexFunc(rest, func(o Result) bool {
			return o.Group != rest[0].Group || o.Resource != rest[0].Resource
		}); n > 0 {
			group = rest[:n]
		}
		rest = rest[len(group):]
		suite, took := suiteOf(group, began)
		began = began.Add(took)
		all.Suites = append(all.Suites, suite)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// suiteOf returns the suite of a group whose checks began then, and how long they took.
func suiteOf(group []Result, began time.Time) (junitSuite, time.Duration) {
	part, total := Report{Results: group}, 0.0
	suite := junitSuite{
		Name:  strings.TrimSpace(group[0].Resource + " " + group[0].Group),
		Tests: len(group), Failures: part.Count(Failed), Skipped: part.Count(Skipped),
		Timestamp: began.UTC().Format(time.RFC3339),
	}
	for _, result := range group {
		total += result.Seconds
		c := junitCase{Class: suite.Name, Name: result.Name, Time: seconds(result.Seconds)}
		switch result.Verdict {
		case Failed:
			c.Failure = &junitFailure{result.Happened, result.details()}
		case Skipped:
			c.Skipped = &junitFailure{Message: result.Happened}
		case Warning:
			c.Out = "warning: " + result.Happened + "\n" + result.details()
		case Passed:
			c.Out = result.Happened
		}
		suite.Cases = append(suite.Cases, c)
	}
	suite.Time = seconds(total)
	return suite, time.Duration(total * float64(time.Second))
}

// details returns the remaining texts of a result.
func (r Result) details() string {
	return fmt.Sprintf("did: %s\nexpected: %s\nwhy: %s\nhint: %s\n", r.Did, r.Expected, r.Why,
		r.Hint)
}

func seconds(s float64) string { return fmt.Sprintf("%.3f", s) }
