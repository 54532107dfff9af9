package nodelogs

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// Bounds of a query.
const (
	maxServices = 4
	maxTail     = 100_000
	maxPattern  = 256
)

// query is a request for the logs of services or a file.
type query struct {
	services []string
	file     string   // a file below the directory, instead of services
	options  []string // of journalctl
}

// service matches names of services: nothing that could start an option or leave a directory.
var service = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9:._@-]*$`)

// parameter narrows down what journalctl prints. value checks the text and returns the option's value.
type parameter struct {
	name, option string
	value        func(text string) (string, error)
}

// parse reads a request's parameters.
func parse(v url.Values) (q query, err error) {
	known, given := sets.New("query"), map[string]string{}
	parameters := []parameter{
		{"sinceTime", "since", moment}, {"untilTime", "until", moment},
		{"tailLines", "lines", number(0, maxTail)}, {"pattern", "grep", pattern},
		{"boot", "boot", number(-1000, 0)},
	}
	for _, p := range parameters {
		known.Insert(p.name)
	}
	for name := range v {
		if !known.Has(name) {
			return q, fmt.Errorf("%s: unknown parameter; known are %s", name,
				strings.Join(sets.List(known), ", "))
		}
	}
	if err := q.names(v["query"]); err != nil {
		return q, err
	}
	for _, p := range parameters {
		text := v.Get(p.name)
		if text == "" {
			continue
		}
		if given[p.name], err = p.value(text); err != nil {
			return q, fmt.Errorf("%s: %w", p.name, err)
		}
		q.options = append(q.options, "--"+p.option+"="+given[p.name])
	}
	if until := given["untilTime"]; until != "" && until < given["sinceTime"] {
		return q, fmt.Errorf("untilTime is before sinceTime")
	}
	if q.file != "" && len(q.options) > 0 {
		return q, fmt.Errorf("query: a file is shown as it is; leave the other parameters out")
	}
	return q, nil
}

// names reads services, or one file.
func (q *query) names(all []string) error {
	all = slices.DeleteFunc(slices.Clone(all), func(s string) bool {
		return strings.TrimSpace(s) == ""
	})
	switch {
	case len(all) == 0:
		return fmt.Errorf("query: name a service, such as kubelet, or a file with a / in it")
	case len(all) > maxServices:
		return fmt.Errorf("query: %d are named, at most %d are allowed", len(all), maxServices)
	}
	for _, name := range all {
		if strings.Contains(name, "/") {
			if len(all) > 1 {
				return fmt.Errorf("query: a file is asked for alone")
			}
			if q.file = strings.TrimPrefix(name, "/"); q.file == "" {
				return fmt.Errorf("query: %q names no file; /logs/ lists them", name)
			}
			return nil
		}
		if !service.MatchString(name) {
			return fmt.Errorf("query: %q is not the name of a service", name)
		}
	}
	q.services = all
	return nil
}

// moment returns a time in a form whose texts have the order of the times.
func moment(text string) (string, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return "", fmt.Errorf("%q is no time such as 2006-01-02T15:04:05Z", text)
	}
	return at.UTC().Format("2006-01-02 15:04:05.000"), nil
}

func number(least, most int) func(string) (string, error) {
	return func(text string) (string, error) {
		n, err := strconv.Atoi(text)
		if err != nil || n < least || n > most {
			return "", fmt.Errorf("%q is no number from %d to %d", text, least, most)
		}
		return strconv.Itoa(n), nil
	}
}

func pattern(text string) (string, error) {
	if len(text) > maxPattern {
		return "", fmt.Errorf("has %d bytes, at most %d are allowed", len(text), maxPattern)
	}
	_, err := regexp.Compile(text)
	return text, err
}

// arguments returns the arguments of journalctl.
func (q query) arguments() []string {
	out := append([]string{"--utc", "--no-pager", "--output=short-precise"}, q.options...)
	for _, name := range q.services {
		out = append(out, "--unit="+name)
	}
	return out
}
