package playground

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/numalet/numalet/agent/placement/assigned"
)

// seen holds the rows and problems that were printed.
type seen struct {
	text  func(assigned.Row) string // tells whether a row has changed
	rows  map[assigned.Key]string
	said  map[string]bool
	calls int // lines of the author's plugin or driver
}

// change is one piece of news, as a line of JSON has it. Exactly one of the fields but Time is set.
type change struct {
	Time time.Time `json:"time"`
	// Container is the row of a container that is new or has changed.
	Container *assigned.Row `json:"container,omitempty"`
	// Gone is a container that there is no longer.
	Gone *assigned.Key `json:"gone,omitempty"`
	// Problem says what the node is short of, or what is wrong with a manifest or a plugin.
	Problem string `json:"problem,omitempty"`
	// Call is a message between the agent and the author's plugin or driver.
	Call string `json:"call,omitempty"`
}

// news returns what has changed since the last picture, and remembers this one.
func (s *seen) news(now picture) (out []change) {
	at := time.Now()
	rows := map[assigned.Key]string{}
	for _, r := range now.rows {
		rows[r.Key] = s.text(r)
		if rows[r.Key] != s.rows[r.Key] {
			out = append(out, change{Time: at, Container: new(r)})
		}
	}
	var gone []change
	for key := range s.rows {
		if _, there := rows[key]; !there {
			gone = append(gone, change{Time: at, Gone: new(key)})
		}
	}
	slices.SortFunc(gone, func(a, b change) int { return strings.Compare(nameOf(*a.Gone), nameOf(*b.Gone)) })
	out = append(out, gone...)
	wrong := map[string]bool{}
	for _, line := range slices.Concat(now.short, now.wrong) {
		if wrong[line] = true; !s.said[line] {
			out = append(out, change{Time: at, Problem: line})
		}
	}
	s.rows, s.said = rows, wrong
	return out
}

func nameOf(k assigned.Key) string { return k.Namespace + "/" + k.Pod + " " + k.Container }

// textOf has the row's cells behind its name, and its message.
func textOf(r assigned.Row) string {
	return strings.TrimSpace(strings.Join(append(Cells(r)[2:], r.State.Message), "  "))
}

// heard returns what was said between the agent and the author's plugin or driver since.
func (s *seen) heard(c *calls) (out []change) {
	var lines []string
	lines, s.calls = c.since(s.calls)
	for _, line := range lines {
		out = append(out, change{Time: time.Now(), Call: line})
	}
	return out
}

// text is the change as a line for people.
func (c change) text() string {
	switch {
	case c.Container != nil:
		return nameOf(c.Container.Key) + "  " + textOf(*c.Container)
	case c.Gone != nil:
		return nameOf(*c.Gone) + "  gone"
	case c.Call != "":
		return c.Call
	}
	return c.Problem
}

// printer writes changes, as lines for people or of JSON.
type printer struct {
	out  io.Writer
	json bool
}

// rowText returns what tells whether a row has changed: JSON has all of it.
func (p printer) rowText() func(assigned.Row) string {
	if !p.json {
		return textOf
	}
	return func(r assigned.Row) string {
		raw, err := json.Marshal(r)
		if err != nil {
			return err.Error()
		}
		return string(raw)
	}
}

// begin says what is played and what can be done. JSON has no such lines.
func (p printer) begin(v viewer) error {
	if p.json {
		return nil
	}
	_, err := fmt.Fprintln(p.out, v.headline)
	for _, h := range v.hints {
		if err == nil {
			_, err = fmt.Fprintln(p.out, h.lines(0)[0])
		}
	}
	return err
}

// print writes a line for each change.
func (p printer) print(news []change) error {
	for _, c := range news {
		if p.json {
			if err := json.NewEncoder(p.out).Encode(c); err != nil {
				return err
			}
			continue
		}
		if _, err := fmt.Fprintf(p.out, "%s  %s\n", c.Time.Format("15:04:05.000"), c.text()); err != nil {
			return err
		}
	}
	return nil
}
