package nodelogs

import (
	"net/url"
	"strings"
	"testing"
)

// FuzzQuery: journalctl only gets options that we know, and services only as their values.
func FuzzQuery(f *testing.F) {
	for _, text := range []string{
		"query=kubelet", "query=--root=/&query=x", "query=a/b", "query=kubelet&tailLines=3&boot=-1",
		"query=kubelet&pattern=--file=/etc/shadow&sinceTime=2026-01-02T15:04:05Z",
		"query=x%00y", "query=%0a--merge", "sinceTime=x", "query=../../etc/shadow",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		values, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		q, err := parse(values)
		if err != nil {
			return
		}
		if q.file == "" && (len(q.services) == 0 || len(q.services) > maxServices) {
			t.Errorf("%q asks for %q", text, q.services)
		}
		for _, argument := range q.arguments() {
			option, value, _ := strings.Cut(argument, "=")
			switch option {
			case "--utc", "--no-pager", "--output", "--since", "--until", "--lines", "--boot":
			case "--unit":
				if !service.MatchString(value) {
					t.Errorf("%q asks for the unit %q", text, value)
				}
			case "--grep":
				if value != values.Get("pattern") {
					t.Errorf("%q looks for %q", text, value)
				}
			default:
				t.Errorf("%q has the option %q", text, argument)
			}
		}
	})
}
