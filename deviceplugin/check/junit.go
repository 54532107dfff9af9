package check

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"time"
)

// junitSuite is the part of JUnit's format that CI systems read.
type junitSuite struct {
	XMLName   xml.Name    `xml:"testsuite"`
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

// WriteJUnit writes a report as a JUnit test suite, a test case for each check.
func WriteJUnit(w io.Writer, r Report) error {
	suite := junitSuite{
		Name: cmp.Or(r.Kind, "device plugin") + " " + r.Resource, Tests: len(r.Results), Failures: r.Count(Failed),
		Skipped: r.Count(Skipped), Time: seconds(r.Seconds),
		Timestamp: r.Began.UTC().Format(time.RFC3339),
	}
	for _, result := range r.Results {
		c := junitCase{Class: result.Group, Name: result.Name, Time: seconds(result.Seconds)}
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
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(suite); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// details returns the remaining texts of a result.
func (r Result) details() string {
	return fmt.Sprintf("did: %s\nexpected: %s\nwhy: %s\nhint: %s\n", r.Did, r.Expected, r.Why,
		r.Hint)
}

func seconds(s float64) string { return fmt.Sprintf("%.3f", s) }
