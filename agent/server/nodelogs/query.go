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
	services     []string
	file         string // a file below the directory, instead of services
	since, until time.Time
	tail         *int
	pattern      *regexp.Regexp
	boot         *int
}

// service matches names of services: nothing that could start an option or leave a directory.
var service = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9:._@-]*$`)

// parse reads a request's parameters.
func parse(v url.Values) (q query, err error) {
	known := sets.New("query", "sinceTime", "untilTime", "tailLines", "pattern", "boot")
	for name := range v {
		if !known.Has(name) {
			return q, fmt.Errorf("%s: unknown parameter; known are %s", name,
				strings.Join(sets.List(known), ", "))
		}
	}
	if err := q.names(v["query"]); err != nil {
		return q, err
	}
	if q.since, err = moment(v, "sinceTime"); err != nil {
		return q, err
	}
	if q.until, err = moment(v, "untilTime"); err != nil {
		return q, err
	}
	if !q.until.IsZero() && q.until.Before(q.since) {
		return q, fmt.Errorf("untilTime is before sinceTime")
	}
	if q.tail, err = number(v, "tailLines", 0, maxTail); err != nil {
		return q, err
	}
	if q.boot, err = number(v, "boot", -1000, 0); err != nil {
		return q, err
	}
	if p := v.Get("pattern"); p != "" {
		if len(p) > maxPattern {
			return q, fmt.Errorf("pattern: has %d bytes, at most %d are allowed", len(p), maxPattern)
		}
		if q.pattern, err = regexp.Compile(p); err != nil {
			return q, fmt.Errorf("pattern: %w", err)
		}
	}
	if q.file != "" && (!q.since.IsZero() || !q.until.IsZero() || q.boot != nil ||
		q.tail != nil || q.pattern != nil) {
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

func moment(v url.Values, name string) (time.Time, error) {
	text := v.Get(name)
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fmt.Errorf("%s: %q is no time such as 2006-01-02T15:04:05Z", name, text)
	}
	return at, nil
}

func number(v url.Values, name string, least, most int) (*int, error) {
	text := v.Get(name)
	if text == "" {
		return nil, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return nil, fmt.Errorf("%s: %q is no number from %d to %d", name, text, least, most)
	}
	return &n, nil
}

// arguments returns the arguments of journalctl.
func (q query) arguments() []string {
	const format = "2006-01-02 15:04:05.000"
	out := []string{"--utc", "--no-pager", "--output=short-precise"}
	if !q.since.IsZero() {
		out = append(out, "--since="+q.since.UTC().Format(format))
	}
	if !q.until.IsZero() {
		out = append(out, "--until="+q.until.UTC().Format(format))
	}
	if q.tail != nil {
		out = append(out, "--lines="+strconv.Itoa(*q.tail))
	}
	for _, name := range q.services {
		out = append(out, "--unit="+name)
	}
	if q.pattern != nil {
		out = append(out, "--grep="+q.pattern.String())
	}
	if q.boot != nil {
		out = append(out, "--boot="+strconv.Itoa(*q.boot))
	}
	return out
}
