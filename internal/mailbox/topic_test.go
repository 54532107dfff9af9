package mailbox

import "testing"

// Each subscriber is woken once for any number of changes that it has not looked at, whichever of
// its sources they come from.
func TestSubscribe(t *testing.T) {
	var a, b Topic
	a.Publish() // nobody listens
	one, both := Subscribe(&a), Subscribe(&a, &b)
	woken := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	for _, step := range []struct {
		publish         []*Topic
		wantOne, wantBo bool
	}{
		{nil, false, false}, {[]*Topic{&a, &a}, true, true}, {[]*Topic{&b}, false, true},
		{[]*Topic{&a, &b}, true, true}, {nil, false, false},
	} {
		for _, topic := range step.publish {
			topic.Publish()
		}
		if gotOne, gotBoth := woken(one), woken(both); gotOne != step.wantOne ||
			gotBoth != step.wantBo {
			t.Errorf("%d published: woken %t and %t, want %t and %t", len(step.publish), gotOne,
				gotBoth, step.wantOne, step.wantBo)
		}
	}
}
