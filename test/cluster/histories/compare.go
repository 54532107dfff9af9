package histories

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Meant is an intended difference between the agents. Field, Value and Pod are regular expressions
// for the whole text; an empty one matches any.
type Meant struct {
	Pod, Field, Value string
	// By is the agent that has such a value where the other has none; empty: either.
	By string
	// Beside is a regular expression for the value of the same attempt that the other agent has in
	// its place; empty: it may have none.
	Beside string
	// Briefly: a value that an agent shows for longer than Comparison.Shortly is not meant.
	Briefly bool
	// Seldom: chance decides whether the difference occurs.
	Seldom bool
	// Why is the reason, with the page that tells users about it.
	Why string
}

// The agents whose records are compared.
const Ours, Theirs = "numalet", "kubelet"

// Comparison compares records of numalet with those of the kubelet.
type Comparison struct {
	Meant []Meant
	// Shortly is how long one agent may show a value that the other does not show.
	Shortly time.Duration

	// known has, by agent and field, the kinds of values that it shows of any pod, and the ways
	// back and forth between values: "running -> waiting -> running".
	known map[string]map[string]bool
	met   map[Meant]bool
}

// Unmet returns the intended differences that did not occur.
func (c *Comparison) Unmet() []Meant {
	return slices.DeleteFunc(slices.Clone(c.Meant), func(m Meant) bool { return m.Seldom || c.met[m] })
}

// Know records the values of an agent's records.
func (c *Comparison) Know(agent string, all map[string]History) {
	if c.known == nil {
		c.known = map[string]map[string]bool{}
	}
	for _, history := range all {
		for field, values := range history {
			key := agent + kindOf(field)
			if c.known[key] == nil {
				c.known[key] = map[string]bool{}
			}
			for i, v := range values {
				c.known[key][kindOfValue(v.Is)] = true
				if i > 1 {
					c.known[key][way(values[i-2:i+1])] = true
				}
			}
		}
	}
}

var (
	listed  = regexp.MustCompile(`\[[^]]*\]`)
	ended   = regexp.MustCompile(`^(terminated|waiting \w+)\b.*`)
	named   = regexp.MustCompile(`^(object \d+: )?(container \S+ )?`)
	attempt = regexp.MustCompile(`^#\d+ `)
)

func kindOf(field string) string { return named.ReplaceAllString(field, "") }

// kindOfValue returns a value without its attempt, names of containers, and how a container ended.
func kindOfValue(is string) string {
	is = attempt.ReplaceAllString(is, "")
	return ended.ReplaceAllString(listed.ReplaceAllString(is, "[]"), "$1")
}

// way formats a way from value to value.
func way(values []Value) string {
	var kinds []string
	for _, v := range values {
		kinds = append(kinds, kindOfValue(v.Is))
	}
	return strings.Join(kinds, " -> ")
}

// Pod returns how the records of a pod differ without intention, a text for each field.
func (c *Comparison) Pod(pod string, ours, theirs History) (out []string) {
	fields := History{}
	maps.Copy(fields, ours)
	maps.Copy(fields, theirs)
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		a, b := ours[field], theirs[field]
		onlyA, onlyB := align(a, b)
		wrong := slices.Concat(c.wrong(pod, field, side{Ours, a, onlyA}, side{Theirs, b, onlyB}),
			c.wrong(pod, field, side{Theirs, b, onlyB}, side{Ours, a, onlyA}))
		if len(wrong) > 0 {
			out = append(out, fmt.Sprintf("%s, %s: %s\n\tnumalet: %s\n\tkubelet: %s", pod, field,
				strings.Join(wrong, "; "), line(a, onlyA), line(b, onlyB)))
		}
	}
	return out
}

// side has one agent's values of a field, and which of them the other agent lacks in that place.
type side struct {
	agent  string
	values []Value
	only   []bool
}

func (s side) has(is string, only bool) bool {
	for i, v := range s.values {
		if v.Is == is && (!only || s.only[i]) {
			return true
		}
	}
	return false
}

// goesBack reports whether a value stands between two equal ones, or is a state that was there
// before.
func (s side) goesBack(field string, i int) bool {
	between := i > 0 && i+1 < len(s.values) && s.values[i-1].Is == s.values[i+1].Is
	return between || strings.HasSuffix(field, " state") &&
		slices.ContainsFunc(s.values[:i], func(v Value) bool { return v.Is == s.values[i].Is })
}

// wrong returns those values of one agent alone that coalescing does not explain.
func (c *Comparison) wrong(pod, field string, s, other side) (out []string) {
	for i, v := range s.values {
		if !s.only[i] {
			continue
		}
		why := c.whyWrong(field, s, other, i)
		if why != "" && !c.isMeant(pod, field, v, s.agent, other) {
			out = append(out, fmt.Sprintf("%s has %q, %s", s.agent, v.Is, why))
		}
	}
	return out
}

func (c *Comparison) whyWrong(field string, s, other side, i int) string {
	v, last := s.values[i], len(s.values)-1
	switch {
	case v.Lasted == Always:
		return "and that only"
	case other.has(v.Is, true):
		return "in another order"
	case i == last && len(other.values) > 0 && other.only[len(other.only)-1]:
		return "and another end"
	case s.agent == Ours && s.goesBack(field, i) && !c.goesToo(other.agent, field, s.values, i):
		return "and goes back"
	case !c.known[other.agent+kindOf(field)][kindOfValue(v.Is)]:
		return "which the other never shows"
	case v.Lasted > c.Shortly:
		return "for long"
	}
	return ""
}

// goesToo reports whether the other agent also goes such a way back and forth with any pod.
func (c *Comparison) goesToo(agent, field string, values []Value, i int) bool {
	for end := i; end <= i+1; end++ {
		if end > 1 && end < len(values) && c.known[agent+kindOf(field)][way(values[end-2:end+1])] {
			return true
		}
	}
	return false
}

func (c *Comparison) isMeant(pod, field string, v Value, by string, other side) bool {
	i := slices.IndexFunc(c.Meant, func(m Meant) bool {
		return (m.By == "" || m.By == by) && matches(m.Pod, pod) && matches(m.Field, field) &&
			matches(m.Value, v.Is) && (m.Beside == "" || other.hasBeside(v.Is, m.Beside)) &&
			(!m.Briefly || v.Lasted <= c.Shortly)
	})
	if i < 0 {
		return false
	}
	if c.met == nil {
		c.met = map[Meant]bool{}
	}
	c.met[c.Meant[i]] = true
	return true
}

// hasBeside reports whether one of its values matches, and is of the same attempt.
func (s side) hasBeside(value, pattern string) bool {
	for _, v := range s.values {
		if attempt.FindString(v.Is) == attempt.FindString(value) && matches(pattern, v.Is) {
			return true
		}
	}
	return false
}

func matches(pattern, text string) bool {
	return pattern == "" || regexp.MustCompile("^(?:"+pattern+")$").MatchString(text)
}

// align pairs equal values in order, as many as possible and among these the longest, and returns
// which are left alone.
func align(a, b []Value) (onlyA, onlyB []bool) {
	cost := make([][]time.Duration, len(a)+1) // of what stays alone of a[i:] and b[j:]
	for i := len(a); i >= 0; i-- {
		cost[i] = make([]time.Duration, len(b)+1)
		for j := len(b); j >= 0; j-- {
			switch {
			case i == len(a) && j == len(b):
			case i == len(a):
				cost[i][j] = cost[i][j+1] + weight(b[j])
			case j == len(b):
				cost[i][j] = cost[i+1][j] + weight(a[i])
			case a[i].Is == b[j].Is:
				cost[i][j] = min(cost[i+1][j+1], cost[i+1][j]+weight(a[i]), cost[i][j+1]+weight(b[j]))
			default:
				cost[i][j] = min(cost[i+1][j]+weight(a[i]), cost[i][j+1]+weight(b[j]))
			}
		}
	}
	onlyA, onlyB = make([]bool, len(a)), make([]bool, len(b))
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && a[i].Is == b[j].Is && cost[i][j] == cost[i+1][j+1]:
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && cost[i][j] == cost[i+1][j]+weight(a[i]):
			onlyA[i] = true
			i++
		default:
			onlyB[j] = true
			j++
		}
	}
	return onlyA, onlyB
}

// weight returns the cost of leaving a value alone: more than all durations together.
func weight(v Value) time.Duration { return 100*time.Hour + min(v.Lasted, time.Hour) }

// line formats values in a line, those left alone in parentheses.
func line(values []Value, only []bool) string {
	var out []string
	for i, v := range values {
		text := v.Is
		if v.Lasted != Always {
			text += " " + v.Lasted.Round(10*time.Millisecond).String()
		}
		if only[i] {
			text = "(" + text + ")"
		}
		out = append(out, text)
	}
	return strings.Join(out, " -> ")
}
