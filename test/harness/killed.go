package harness

import "time"

// AwaitKilled waits until the agent has died of a signal that the test had it sent.
func (n *Node) AwaitKilled() {
	n.t.Helper()
	select {
	case <-n.ended:
		n.agent = nil
	case <-time.After(Patience):
		n.t.Fatalf("the agent was to be killed, and lives after %v", Patience)
	}
}
