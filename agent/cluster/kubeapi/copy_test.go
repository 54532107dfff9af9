package kubeapi

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/internal/podtest"
)

// The newest of deliveries and answers counts, in whatever order they come. A delivery that
// contradicts an answer raises a doubt after a while, which ends when the watch agrees or is
// believed.
func TestCopy(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(uid, version string) *v1.Pod {
		return podtest.New(uid, func(p *v1.Pod) { p.ResourceVersion = version })
	}
	deliver := func(uid, version string) func(*Copy[*v1.Pod]) {
		return func(c *Copy[*v1.Pod]) { c.Deliver(at(uid, version), start) }
	}
	answer := func(uid, version string) func(*Copy[*v1.Pod]) {
		return func(c *Copy[*v1.Pod]) { c.Take(at(uid, version)) }
	}
	none := func(c *Copy[*v1.Pod]) { c.Deliver(nil, start) }
	type event struct {
		do    func(*Copy[*v1.Pod])
		has   string // version; "": nothing
		doubt bool   // in the end
	}
	for name, events := range map[string][]event{
		"an older delivery": {{deliver("a", "5"), "5", false}, {answer("a", "7"), "7", false},
			{deliver("a", "6"), "7", true}, {deliver("a", "7"), "7", false}},
		"a restored server": {{answer("a", "7"), "7", false}, {deliver("a", "2"), "7", true},
			{(*Copy[*v1.Pod]).Believe, "2", false}},
		"a late delivery of what is gone": {{deliver("a", "5"), "5", false},
			{(*Copy[*v1.Pod]).Lose, "", false}, {deliver("a", "5"), "", true}, {none, "", false}},
		"it is not gone": {{deliver("a", "5"), "5", false}, {(*Copy[*v1.Pod]).Lose, "", false},
			{deliver("a", "6"), "6", false}},
		"another one": {{deliver("a", "5"), "5", false}, {answer("b", "9"), "9", false},
			{deliver("a", "6"), "9", true}, {none, "9", true}, {deliver("b", "9"), "9", false}},
		"another one, without versions": {{deliver("a", ""), "", false}, {answer("b", ""), "", false},
			{deliver("a", ""), "", true}},
		"made, and deleted before the watch saw it": {{answer("a", "5"), "5", false},
			{none, "5", true}, {(*Copy[*v1.Pod]).Believe, "", false}},
	} {
		t.Run(name, func(t *testing.T) {
			var c Copy[*v1.Pod]
			for i, e := range events {
				e.do(&c)
				has := ""
				if got := c.Get(); got != nil {
					has = got.ResourceVersion
				}
				at := start.Add(Patience)
				if early, _ := c.Doubted(at.Add(-1)); early {
					t.Errorf("event %d: it is doubted at once", i)
				}
				if doubted, _ := c.Doubted(at); has != e.has || doubted != e.doubt {
					t.Errorf("event %d: has %q, doubted %t; want %q, %t", i, has, doubted, e.has, e.doubt)
				}
			}
		})
	}
}

// A delivery is news if it is another version and counts.
func TestDeliveriesThatAreNews(t *testing.T) {
	var c Copy[*v1.Pod]
	for i, step := range []struct {
		version string
		news    bool
	}{{"5", true}, {"5", false}, {"4", false}, {"6", true}, {"", true}, {"", true}} {
		pod := podtest.New("u", func(p *v1.Pod) { p.ResourceVersion = step.version })
		if got := c.Deliver(pod, time.Time{}); got != step.news {
			t.Errorf("delivery %d of version %q is news: %t", i, step.version, got)
		}
	}
}
