package shutdown

import "testing"

// A shutdown that is cancelled while pods end is over, which is recorded; the pods of later waves stay.
// When the next one is announced, it begins anew.
func TestCancelledMeanwhile(t *testing.T) {
	b := system(t)
	n := start(t, b, two...)
	n.inhibits(1)
	n.cling()
	b.Prepare(true)
	n.says1(began + "; pod0 within 20s")
	b.Prepare(false)
	const before = began + "; pod0 within 20s; " + cancelled
	n.says1(before)
	n.eventually("the end is recorded", func() bool { return !n.recorded().End.IsZero() })
	n.inhibits(1)
	first := n.recorded()
	if n.announced.Now() || first.End.Before(first.Start) {
		t.Errorf("announced %t, %v", n.announced.Now(), first)
	}
	b.Prepare(true)
	n.says1(before + "; " + began + "; pod0 within 20s")
	n.eventually("the next one is recorded", func() bool { return n.recorded().End.IsZero() })
	if next := n.recorded(); !next.Start.After(first.End) || !n.announced.Now() || b.Locks() != 1 {
		t.Errorf("announced %t, %d inhibitors, %v", n.announced.Now(), b.Locks(), next)
	}
}
