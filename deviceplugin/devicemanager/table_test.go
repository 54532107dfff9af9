package devicemanager

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"
)

// describe returns a resource in one line.
func describe(t *table, resource string) string {
	res, known := t.view(1).inventory.Resources[resource]
	if !known {
		return "unknown"
	}
	return fmt.Sprintf("connected=%t devices=%d healthy=%d",
		res.Connected, len(res.Devices), healthy(res.Devices))
}

func someDevices(n int) list {
	var out []*Device
	for i := range n {
		out = append(out, &Device{ID: fmt.Sprint(i), Healthy: true})
	}
	l, _ := arrange(out, defects{})
	return l
}

// Each story is a list of steps: "link does: the resource afterwards; superseded links".
func TestTableStories(t *testing.T) {
	type step struct {
		link       string // its first letter is the socket
		does       eventKind
		devices    int
		want       string
		superseded []string
	}
	const (
		away   = "connected=false devices=0 healthy=0"
		two    = "connected=true devices=2 healthy=2"
		three  = "connected=true devices=3 healthy=3"
		lost2  = "connected=false devices=2 healthy=0"
		absent = "unknown"
	)
	for name, steps := range map[string][]step{
		"a life": {
			{"a", linkRegistered, 0, away, nil}, {"a", linkListed, 2, two, nil},
			{"a", linkListed, 3, three, nil}, {"a", linkListed, 2, two, nil},
			{"a", linkClosed, 0, lost2, nil}, {"a", linkExpired, 0, absent, nil},
		},
		"never lists": {
			{"a", linkRegistered, 0, away, nil}, {"a", linkClosed, 0, away, nil},
			{"a", linkExpired, 0, absent, nil},
		},
		"registers the same socket again, closing late": {
			{"a", linkRegistered, 0, away, nil}, {"a", linkListed, 2, two, nil},
			{"a'", linkRegistered, 0, two, nil}, {"a'", linkListed, 3, three, []string{"a"}},
			{"a", linkClosed, 0, three, nil},
		},
		"registers the same socket again, closing early": {
			{"a", linkRegistered, 0, away, nil}, {"a", linkListed, 2, two, nil},
			{"a'", linkRegistered, 0, two, nil}, {"a", linkClosed, 0, lost2, nil},
			{"a'", linkListed, 3, three, []string{"a"}},
		},
		"registers over and over": {
			{"a", linkRegistered, 0, away, nil}, {"a'", linkRegistered, 0, away, []string{"a"}},
			{"a''", linkRegistered, 0, away, []string{"a'"}}, {"a''", linkListed, 2, two, nil},
		},
		"takeover, and the older one ends": {
			{"a", linkRegistered, 0, away, nil}, {"a", linkListed, 2, two, nil},
			{"b", linkRegistered, 0, two, nil}, {"b", linkListed, 3, three, nil},
			{"a", linkListed, 2, three, nil}, {"a", linkClosed, 0, three, []string{"a"}},
		},
		"takeover, and the newer one ends": {
			{"a", linkRegistered, 0, away, nil}, {"b", linkRegistered, 0, away, nil},
			{"b", linkListed, 3, three, nil}, {"a", linkListed, 2, three, nil},
			{"b", linkClosed, 0, two, []string{"b"}},
		},
		"takeover that fails": {
			{"a", linkRegistered, 0, away, nil}, {"a", linkListed, 2, two, nil},
			{"b", linkRegistered, 0, two, nil}, {"b", linkClosed, 0, two, []string{"b"}},
		},
		"a failed newcomer hides no device": {
			{"a", linkRegistered, 0, away, nil}, {"a", linkListed, 2, two, nil},
			{"a", linkClosed, 0, lost2, nil}, {"b", linkRegistered, 0, lost2, nil},
			{"b", linkClosed, 0, lost2, nil}, {"a", linkExpired, 0, away, nil},
			{"b", linkExpired, 0, absent, nil},
		},
		"back on another socket": {
			{"a", linkRegistered, 0, away, nil}, {"a", linkListed, 2, two, nil},
			{"a", linkClosed, 0, lost2, nil}, {"b", linkRegistered, 0, lost2, nil},
			{"b", linkListed, 3, three, []string{"a"}},
		},
		"the stream ends and comes again": {
			{"a", linkRegistered, 0, away, nil}, {"a", linkListed, 2, two, nil},
			{"a", linkLost, 0, lost2, nil}, {"a", linkTroubled, 0, lost2, nil},
			{"a", linkListed, 2, two, nil}, {"a", linkClosed, 0, lost2, nil},
		},
		"the stream ends beside a standby": {
			{"a", linkRegistered, 0, away, nil}, {"a", linkListed, 2, two, nil},
			{"b", linkRegistered, 0, two, nil}, {"b", linkListed, 3, three, nil},
			{"b", linkLost, 0, two, nil}, {"b", linkListed, 3, three, nil},
			{"a", linkLost, 0, three, nil}, {"a", linkListed, 2, three, nil},
			{"b", linkClosed, 0, two, []string{"b"}},
		},
		"an empty list, and the end": {
			{"a", linkRegistered, 0, away, nil}, {"a", linkListed, 2, two, nil},
			{"a", linkListed, 0, "connected=true devices=0 healthy=0", nil},
			{"a", linkClosed, 0, away, nil},
		},
		"begins with an empty list": {
			{"a", linkRegistered, 0, away, nil}, {"a", linkListed, 0, away, nil},
			{"a", linkListed, 2, two, nil}, {"a", linkGraceOver, 0, two, nil},
		},
		"has nothing": {
			{"a", linkRegistered, 0, away, nil}, {"a", linkListed, 0, away, nil},
			{"a", linkGraceOver, 0, "connected=true devices=0 healthy=0", nil},
			{"a", linkListed, 2, two, nil},
		},
		"a newcomer that begins with an empty list": {
			{"a", linkRegistered, 0, away, nil}, {"a", linkListed, 2, two, nil},
			{"a'", linkRegistered, 0, two, nil}, {"a'", linkListed, 0, two, nil},
			{"a", linkClosed, 0, lost2, nil}, {"a'", linkListed, 3, three, []string{"a"}},
		},
		"begins with an empty list, over and over": {
			{"a", linkRegistered, 0, away, nil}, {"a", linkListed, 0, away, nil},
			{"a'", linkRegistered, 0, away, []string{"a"}}, {"a", linkGraceOver, 0, away, nil},
			{"a'", linkListed, 0, away, nil}, {"a'", linkLost, 0, away, nil},
			{"a'", linkGraceOver, 0, away, nil}, {"a'", linkListed, 2, two, nil},
		},
		"an empty list after the stream came again": {
			{"a", linkRegistered, 0, away, nil}, {"a", linkListed, 2, two, nil},
			{"a", linkLost, 0, lost2, nil}, {"a", linkListed, 0, lost2, nil},
			{"a", linkTroubled, 0, lost2, nil}, {"a", linkListed, 0, lost2, nil},
			{"a", linkGraceOver, 0, "connected=true devices=0 healthy=0", nil},
		},
		"a list after the end": {
			{"a", linkRegistered, 0, away, nil}, {"a", linkListed, 2, two, nil},
			{"a", linkClosed, 0, lost2, nil}, {"a", linkListed, 3, lost2, nil},
		},
		"a list that is too long": {
			{"a", linkRegistered, 0, away, nil}, {"a", linkListed, 2, two, nil},
			{"a", linkRefused, 0, two, nil}, {"a", linkRefused, 0, two, nil},
			{"a", linkListed, 3, three, nil}, {"a", linkRefused, 0, three, nil},
			{"a", linkTroubled, 0, "connected=false devices=3 healthy=0", nil},
			{"a", linkListed, 2, two, nil},
		},
		"a newcomer's list is too long": {
			{"a", linkRegistered, 0, away, nil}, {"a", linkListed, 2, two, nil},
			{"b", linkRegistered, 0, two, nil}, {"b", linkRefused, 0, two, nil},
			{"a", linkClosed, 0, lost2, nil},
		},
		"a list is too long, and the plugin goes": {
			{"a", linkRegistered, 0, away, nil}, {"a", linkListed, 2, two, nil},
			{"a", linkRefused, 0, two, nil}, {"a", linkLost, 0, lost2, nil},
			{"a", linkClosed, 0, lost2, nil}, {"a", linkRefused, 0, lost2, nil},
		},
		"older one registered first and lists last": {
			{"a", linkRegistered, 0, away, nil}, {"a'", linkRegistered, 0, away, []string{"a"}},
			{"a", linkListed, 3, away, nil},
		},
	} {
		t.Run(name, func(t *testing.T) {
			table := &table{}
			links := map[string]*link{}
			for i, s := range steps {
				if s.does == linkRegistered {
					links[s.link] = newTestLink(gpu, "/"+s.link[:1])
				}
				superseded := table.apply(event{
					kind: s.does, link: links[s.link], list: someDevices(s.devices), problem: "x",
				})
				var names []string
				for _, l := range superseded {
					for name := range links {
						if links[name] == l {
							names = append(names, name)
						}
					}
				}
				if got := describe(table, gpu); got != s.want {
					t.Errorf("step %d (%s): %s, want %s", i, s.link, got, s.want)
				}
				if diff := cmp.Diff(s.superseded, names); diff != "" {
					t.Errorf("step %d (%s): superseded, -want +got:\n%s", i, s.link, diff)
				}
			}
		})
	}
}

// In any order of events: a resource is connected exactly while a link that nothing superseded is
// listing, the newest such link serves it, and no record stays for ever.
func TestTableInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := &table{}
		var links []*link
		phase := map[*link]eventKind{}
		gone := map[*link]bool{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			kind := eventKind(rapid.IntRange(0, int(linkExpired)).Draw(t, "kind"))
			e := event{kind: kind, list: someDevices(rapid.IntRange(0, 3).Draw(t, "devices"))}
			if kind == linkRegistered {
				e.link = newTestLink(
					rapid.SampledFrom([]string{gpu, nic}).Draw(t, "resource"),
					rapid.SampledFrom([]string{"/a", "/b"}).Draw(t, "socket"))
				links = append(links, e.link)
			} else {
				if len(links) == 0 {
					continue
				}
				e.link = rapid.SampledFrom(links).Draw(t, "link")
				if !follows(phase[e.link], kind) {
					continue
				}
			}
			phase[e.link] = after(phase[e.link], e)
			for _, l := range table.apply(e) {
				gone[l] = true
			}
			checkServing(t, table, links, phase, gone)
		}
		for _, l := range links {
			table.apply(event{kind: linkClosed, link: l})
			table.apply(event{kind: linkFaded, link: l})
			table.apply(event{kind: linkExpired, link: l})
		}
		if n := len(table.view(1).inventory.Resources); n > 0 || len(table.records) > 0 {
			t.Errorf("%d resources and %d records are left", n, len(table.records))
		}
	})
}

// after returns the phase of a link's life after a report. linkEarly stands for a link whose first
// list was empty; nothing else leads to it.
func after(phase eventKind, e event) eventKind {
	switch e.kind {
	case linkRefused, linkEarly, pluginRefused:
		return phase
	case linkListed:
		if phase != linkListed && len(e.list.devices) == 0 {
			return linkEarly
		}
	case linkGraceOver:
		if phase == linkEarly {
			return linkListed
		}
		return phase
	case linkFaded:
		if phase != linkClosed { // it is tried again
			return phase
		}
	}
	return e.kind
}

// follows reports whether a link may report now after before: its life has an order.
func follows(before, now eventKind) bool {
	switch now {
	case linkTroubled:
		return before < linkClosed
	case linkListed, linkRefused, linkClosed, linkEarly, linkGraceOver, pluginRefused:
		return before < linkClosed
	case linkLost:
		return before == linkListed || before == linkEarly
	case linkFaded:
		return before <= linkClosed
	case linkExpired:
		return before == linkFaded
	}
	return false
}

func checkServing(t *rapid.T, table *table, links []*link, phase map[*link]eventKind,
	gone map[*link]bool) {
	view := table.view(1)
	for _, resource := range []string{gpu, nic} {
		var newest *link
		for _, l := range slices.Backward(links) {
			if l.resource == resource && phase[l] == linkListed && !gone[l] {
				newest = l
				break
			}
		}
		if got := view.inventory.Resources[resource].Connected; got != (newest != nil) {
			t.Errorf("%s: connected=%t", resource, got)
		}
		if newest != nil && view.links[resource] != newest {
			t.Errorf("%s is served by another link than the newest", resource)
		}
	}
}

// The numbers in the node's status, step by step.
func TestCapacityStories(t *testing.T) {
	type step struct {
		does    eventKind
		devices int
		want    string
	}
	for name, steps := range map[string][]step{
		"an update of the plugin does not show": {
			{linkRegistered, 0, "0 of 0"}, {linkListed, 3, "3 of 3"}, {linkLost, 0, "3 of 3"},
			{linkListed, 3, "3 of 3"},
		},
		"the graces end one after the other": {
			{linkRegistered, 0, "0 of 0"}, {linkListed, 3, "3 of 3"}, {linkClosed, 0, "3 of 3"},
			{linkFaded, 0, "0 of 3"}, {linkExpired, 0, "0 of 0, gone"},
		},
		"a grace ends while the plugin is tried again": {
			{linkRegistered, 0, "0 of 0"}, {linkListed, 3, "3 of 3"}, {linkLost, 0, "3 of 3"},
			{linkFaded, 0, "0 of 3"}, {linkTroubled, 0, "0 of 3"}, {linkListed, 3, "3 of 3"},
			{linkFaded, 0, "3 of 3"}, {linkLost, 0, "3 of 3"},
		},
		"an empty first list is no list until its grace is over": {
			{linkRegistered, 0, "0 of 0"}, {linkListed, 0, "0 of 0"}, {linkListed, 3, "3 of 3"},
			{linkGraceOver, 0, "3 of 3"}, {linkLost, 0, "3 of 3"}, {linkListed, 0, "3 of 3"},
			{linkListed, 0, "3 of 3"}, {linkGraceOver, 0, "0 of 0"}, {linkListed, 2, "2 of 2"},
		},
		"an empty list of a plugin that has listed devices counts at once": {
			{linkRegistered, 0, "0 of 0"}, {linkListed, 3, "3 of 3"}, {linkListed, 0, "0 of 0"},
			{linkClosed, 0, "0 of 0"}, {linkExpired, 0, "0 of 0, gone"},
		},
		"back again": {
			{linkRegistered, 0, "0 of 0"}, {linkListed, 3, "3 of 3"}, {linkClosed, 0, "3 of 3"},
			{linkExpired, 0, "0 of 0, gone"}, {linkRegistered, 0, "0 of 0"},
			{linkListed, 2, "2 of 2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			table := &table{}
			var l *link
			for i, s := range steps {
				if s.does == linkRegistered {
					l = newTestLink(gpu, "/a")
				}
				table.apply(event{kind: s.does, link: l, list: someDevices(s.devices)})
				inv := table.view(1).inventory
				capacity := v1.ResourceList{"cpu": resource.MustParse("4"),
					gpu: resource.MustParse("99"), "theirs.com/x": resource.MustParse("7")}
				allocatable := capacity.DeepCopy()
				inv.Count(capacity, allocatable)
				got := fmt.Sprintf("%d of %d",
					allocatable.Name(gpu, "").Value(), capacity.Name(gpu, "").Value())
				if slices.Contains(inv.Gone, gpu) {
					got += ", gone"
				}
				if got != s.want {
					t.Errorf("step %d: %s, want %s", i, got, s.want)
				}
				for _, list := range []v1.ResourceList{capacity, allocatable} {
					if len(list) != 3 || list.Cpu().Value() != 4 ||
						list.Name("theirs.com/x", "").Value() != 7 {
						t.Errorf("step %d: others' resources became %v", i, list)
					}
				}
			}
		})
	}
}
