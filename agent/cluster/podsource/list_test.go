package podsource

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// head is the rest of a list without items.
const head = `"metadata":{"resourceVersion":"10"},"items":[]}`

const emptyList = `{"kind":"PodList","apiVersion":"v1",` + head

// Whatever an API server, or a proxy before it, answers with 200: only a PodList with a resource
// version is accepted. Until there is one, no pods are delivered.
func TestOnlyAListIsAList(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"nothing":                   ``,
		"an empty object":           `{}`,
		"no kind":                   `{` + head,
		"a Status":                  `{"kind":"Status","apiVersion":"v1","status":"Success"}`,
		"a NodeList":                `{"kind":"NodeList","apiVersion":"v1",` + head,
		"a Pod":                     `{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"10"}}`,
		"a List":                    `{"kind":"List","apiVersion":"v1",` + head,
		"a list without a version":  `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}`,
		"a list of another version": `{"kind":"PodList","apiVersion":"v2",` + head,
		"a page":                    `<html>sign in</html>`,
		"a list of JSON":            `[]`,
		"null":                      `null`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAPI(t)
			a.put("a", nil)
			a.bodies = []string{body}
			s := newSite(t, a)
			s.expect("ADD a") // and nothing before it
			if a.lists < 2 {
				t.Errorf("%d lists", a.lists)
			}
		})
	}
}

// A list without any of the running pods is requested a second time: they end only if the API
// server confirms it.
func TestAListThatEndsAllIsAskedForTwice(t *testing.T) {
	t.Parallel()
	runs := []types.UID{"uid-a", "uid-b"}
	for name, test := range map[string]struct {
		bodies []string
		pods   []string
		want   string
		lists  int // at least
	}{
		"one empty list":        {[]string{emptyList}, []string{"a", "b"}, "ADD a b", 3},
		"another cluster":       {nil, []string{"x"}, "ADD x", 2},
		"no pods any more":      {nil, nil, "ADD", 2},
		"one of them":           {nil, []string{"b", "x"}, "ADD b x", 1},
		"no second answer":      {[]string{emptyList, `{}`}, []string{"a"}, "ADD a", 3},
		"two of three, in turn": {[]string{emptyList, `<`, emptyList}, []string{"a"}, "ADD a", 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAPI(t)
			for _, pod := range test.pods {
				a.put(pod, nil)
			}
			a.bodies = test.bodies
			s := siteWith(t, a, runs)
			s.expect(test.want)
			a.mu.Lock()
			defer a.mu.Unlock()
			if a.lists < test.lists {
				t.Errorf("%d lists, want %d", a.lists, test.lists)
			}
		})
	}
}

// On an empty node no list is requested twice.
func TestAnEmptyNodeBeginsAtOnce(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	began := time.Now()
	s := siteWith(t, a, nil)
	s.expect("ADD")
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lists != 1 {
		t.Errorf("%d lists within %v", a.lists, time.Since(began))
	}
}
