package mailbox

import "testing"

// Each subscriber is woken once for any number of changes that it has not looked at.
func TestTopicWakesEverySubscriber(t *testing.T) {
	var topic Topic
	topic.Publish() // nobody listens
	one, other := topic.Subscribe(), topic.Subscribe()
	topic.Publish()
	topic.Publish()
	for _, c := range []<-chan struct{}{one, other} {
		select {
		case <-c:
		default:
			t.Fatal("a subscriber was not woken")
		}
		select {
		case <-c:
			t.Error("a subscriber was woken twice before it looked")
		default:
		}
	}
	<-func() <-chan struct{} { topic.Publish(); return one }()
}
